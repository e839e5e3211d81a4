"""The prose of wikitext, and that the token walk gives what the library's tree gives."""

import random
import re
import time

import pytest

pytest.importorskip("mwparserfromhell", reason="needs the extra `data`")

import mwparserfromhell
from mwparserfromhell import nodes

from ckl_jax.errors import UserError
from ckl_jax.papers.temporalwiki.data import holes, inline_templates, wikitext
from ckl_jax.papers.temporalwiki.data.wiki_xml import SiteInfo, read_pages
from ckl_jax.papers.temporalwiki.data.wikitext import Extractor, is_disambiguation, sections
from tests.real_data import wikipedia_excerpt


@pytest.mark.parametrize(
    "source, expected",
    [
        ("{{convert|10|to|20|km|mi}}", "10 to 20 kilometres"),
        ("{{convert|6|ft|2|in|m}}", "6 feet 2 inches"),
        ("{{Convert|1|mi|km|adj=on}} walk", "1-mile walk"),
        ("{{convert|3|by|4|m|sp=us}}", "3 by 4 meters"),
        ("{{cvt|30|C|F}}, {{convert|22|C|F}}", "30 °C, 22 °C"),
        ("from {{BCE|343}}, {{chem|CO|2}} {{US patent|123}}", "from 343 BCE, CO2 U.S. Patent 123"),
        (
            "{{formatnum:3003}} m {{OldStyleDate|May 2|1905|April 19}}",
            "3,003 m May 2 (O.S. April 19) 1905",
        ),
        ("{{As of|2021|12}}, she", "As of December 2021, she"),
        ("{{as of|2021|12|31|lc=y|df=US}}", "as of December 31, 2021"),
        ("{{As of|2019|alt=By 2019}}", "By 2019"),
        ("{{US$|9 million}} ({{currency|3|GBP}})", "US$9 million (£3)"),
        ("{{circa|1850}} to {{circa|1860|1870}}", "c. 1850 to c. 1860 – c. 1870"),
        ("{{ill|Ada Byron|de|Ada|lt=Ada}}, {{ill|Jo|fr}}", "Ada, Jo"),
        ("{{nihongo|Tokyo|東京|Tōkyō}}", "Tokyo (東京, Tōkyō)"),
        ("{{USS|Enterprise|CVN-65|6}}, {{ship|HMS|Hood}}", "USS Enterprise, HMS Hood"),
        ("{{sclass|Nimitz|aircraft carrier}}", "Nimitz-class aircraft carrier"),
        ("{{frac|1|2}} {{frac|2|1|3}} {{frac|7}}", "1/2 2 1/3 1/7"),
        ("{{abbr|UN|United Nations}} {{flag|France}}", "UN France"),
        ("{{val|1.2|0.3|u=km}} {{val|5|e=9}}", "1.2±0.3 km 5×10^9"),
        ("{{val|10|-|20|u=m}}, {{val|5|u=kg|up=s}}", "10–20 m, 5 kg/s"),
        ("{{val|5|2|1}}, {{val|5|(2)|s=%}}, {{val|5|s=&nbsp;million}}", "5+2−1, 5(2)%, 5 million"),
        ("{{val|1.67|(51)|e=-27}}, {{dts|2001|Feb|3}}", "1.67(51)×10^-27, February 3, 2001"),
        ("'so.{{' \"}} {{No.|5}} f(), {{No.}} 6", "'so.'\" No. 5 f(), No. 6"),
        ("Full. {{cite book|title=X}}", "Full."),
        (
            "{{gaps|1|000|000|000|000}} {{gaps|lhs=N|6.02|(30)|e=23|u=m}}",
            "1000000000000 N = 6.02(30)×10^23 m",
        ),
        ("{{chem|H|2=3|O}} {{frac|1=1|2=4}} {{convert|5|ft|adj=mid|high}}", "HO 1/4 5-foot high"),
        (
            "It is {{val|5|err=0.1}}. It is {{gaps|1|000|base=2}}. It is {{val|5|fmt=gaps}}.",
            "It is 5.",
        ),
        (
            "K ({{lang-uk|Q}}, {{IPA-uk|x}}; {{lang-ru|R}}), C (born F, {{IPA-pl|x}}; 1810)",
            "K (Ukrainian: Q; Russian: R), C (born F; 1810)",
        ),
        (
            "L (French: {{IPA|fr|x|lang|P.ogg}}; born 1950) is ({{IPAc-en|z}}, or {{IPAc-en|z}}).",
            "L (born 1950) is.",
        ),
        (
            "M (Estados, {{audio|x.ogg|listen}}), 2<sup>{{frac|7|12}}</sup>, {{IPA|pa}}",
            "M (Estados), 2^7/12, pa",
        ),
        ("{{flag|France}} won. {{flag|FRA}} lost.", "France won."),
        ("{{audio|x.ogg|Aachen}} is old. {{audio|x.ogg}}", "Aachen is old."),
        ("1.5{{±|0.3|0.1}} {{±|0.2}}, {{frac|1|2=3}}", "1.5+0.3−0.1 ±0.2, 1/3"),
        ("{{font color|white|blue|Hi}} {{linktext|a|b|c|d|e}} {{nts|50|prefix=$}}", "Hi abcde $50"),
        ("{{currency|amount=1000|code=GBP}}, {{convert|1|e6acre}}", "£1000, 1 million acres"),
        ("{{hms|5|6|7}}, {{HMS|Hood}}. It has {{convert|100||m}} of it.", "5h 6m 7s, HMS Hood."),
        ("384{{ndash}}{{BCE|link|322}}, {{sfrac|''n'' + 1|2}}", "384–322 BCE, (n + 1)/2"),
        ("See {{cite book|title=X}} for it. Full.", "Full."),
        ("{{convert|5|mi|10|chain|km}}, {{convert|5|km|mi|1}}", "5 miles 10 chains, 5 kilometres"),
        ("{{convert|50|ML|acre.ft}}, {{convert|5|kN|lbf}}", "50 megalitres, 5 kilonewtons"),
        (
            "{{convert|5|mW}}, {{convert|5|MW}}, {{convert|5|KM}}",
            "5 milliwatts, 5 megawatts, 5 kilometres",
        ),
        ("{{convert|500|nm|in}} {{convert|22|e6acre|km2}}", "500 nanometres 22 million acres"),
        (
            "{{convert|160|Tcuft}}, {{convert|3|koilbbl/d|abbr=on}}",
            "160 trillion cubic feet, 3 thousand bbl/d",
        ),
        (
            "3{{frac|1|2}} and {{frac|1|2}}, {{convert|3{{frac|1|2}}|mi}}",
            "3 1/2 and 1/2, 3 1/2 miles",
        ),
        (
            "{{convert|2|by|3/4|in|mm}}, {{convert|6|ft|1/2|in|m}}",
            "2 by 3/4 inches, 6 feet 1/2 inch",
        ),
        (
            "{{convert|2|to|1e6|km}}, {{convert|5|,|6|, and|7|km|mi}}",
            "2 to 1e6 kilometres, 5, 6, and 7 kilometres",
        ),
        (
            "{{convert|5|xx|6|km}}, {{convert|53|LT|7|cwt}}",
            "5 by 6 kilometres, 53 long tons 7 hundredweight",
        ),
        ("{{convert|9|meters}}, {{convert|5|Kg}}", "9 metres, 5 kilograms"),
        (
            "No: {{convert|7|smoot|m}}. Nor {{convert|5|mPa}}, {{convert|3|KN}}. It is 5.",
            "It is 5.",
        ),
        (
            "It costs {{convert|5|$/acre}}. It is {{convert|1/2|mi}}, {{convert|3/2|mi}}.",
            "It is 1/2 mile, 3/2 miles.",
        ),
        (
            "{{convert|7|ktTNT|TJ}}, {{convert|7|e6BTU}}",
            "7 kilotonnes of TNT, 7 million British thermal units",
        ),
        (
            "{{convert|12345.5|km}}, {{convert|.5|km}}, {{formatnum:1234567.8}}",
            "12,345.5 kilometres, 0.5 kilometres, 1,234,567.8",
        ),
        ("{{convert|20|C|F|adj=on}}, {{height|m=1.8|ft=5|in=11}}", "20 °C, 1.8 m"),
        (
            "{{USS|Hornet|CV-12}}, {{USS|Hornet|CV-12|1}}, {{USS|Hornet|CV-12|2}}",
            "USS Hornet (CV-12), CV-12, Hornet",
        ),
        (
            "{{GS|U-552}}, {{ship|German submarine|U-552||2}}, {{HMS|Hood|51|6}}",
            "German submarine U-552, U-552, HMS Hood",
        ),
        (
            "The {{sclass|Nimitz|carrier|5}}, {{sclass|Nimitz|carrier|4}}. A {{USS|X|C|3}}.",
            "The Nimitz-class, Nimitz class.",
        ),
        (
            "He was {{age|1950|1|2|2000|1|1}}. She is {{age|1950|1|1}}. {{As of|2021-12-05|df=US}}",
            "He was 49. As of December 5, 2021",
        ),
        (
            "{{lang-fr|mot|label=none}}, {{langx|de|Wort}}, {{lang-xyz|q}}, {{Template:em|a}}",
            "mot, German: Wort, q, a",
        ),
        (
            "After ''Eagle''{{'}}s and ''Columbia''{{'s}}, ''Odyssey''&#39;s orbit",
            "After Eagle's and Columbia's, Odyssey's orbit",
        ),
        (
            "A <code>x()</code> is <noinclude>here</noinclude>. A <source inline>y</source> is.",
            "A x() is here.",
        ),
        ("It is <score>c d e</score> long. So is {{{1}}}. It is {{{p|five}}}.", "It is five."),
        (
            "It is at http://a.com. It is so [http://a.com]. Yes.[http://a.com] <code>,</code> is.",
            "It is so. Yes.",
        ),
        (
            "The tower [pop. {{Unk}}; old] is big. Rs.{{Unk|5}} crore was paid.",
            "The tower [old] is big.",
        ),
        (
            "It has over{{Unk|5}} km. Height:{{Unk|5}} at most. It is 5.{{Unk}} So.{{Unk}} Yes.",
            "It is 5. So. Yes.",
        ),
        ("{{convert|9|km|disp=or}} {{convert|9|km|disp=x|a|b}}", "9 kilometres 9 kilometres"),
        (
            "Rome ({{lang-la|Roma}}, {{IPA-la|ro}}) and Oslo (see; {{IPA-no|o}})",
            "Rome (Latin: Roma) and Oslo (see)",
        ),
        ("{{height|ft=6|in=2}}", "6 ft 2 in"),
        ("{{birth date|1990|5|3}}, {{start date|2021|12}}", "May 3, 1990, December 2021"),
        ("{{death date and age|2001|2|28|1920|1|1|df=yes}}", "28 February 2001"),
        ("{{birth_date|1990}} {{Lang|1=fr|2=mot}}", "1990 mot"),
        ("{{nee|Smith}} {{sic|teh}} {{Lang-el|λ}}", "née Smith teh Greek: λ"),
    ],
)
def test_templates_within_sentences(source, expected):
    """What a reader of the page sees, without the bracket of a conversion."""
    assert Extractor().paragraphs(source) == [expected]


@pytest.mark.parametrize(
    "source, expected, phrases, sentences",
    [
        # Attached like a note, between sentences, at an end, on a line of its own: nothing is lost.
        ("One.{{x}} Two{{y|z}}, three{{x}}.", "One. Two, three.", 0, 0),
        ("{{x}}One. {{y}} Two. {{x}}", "One. Two.", 0, 0),
        ("{{x}} ''One'' is.", "One is.", 0, 0),
        ("One {{sfn|a}} is{{cn}}.", "One is.", 0, 0),
        # Its bracket goes, or the part between semicolons.
        ("A town ({{x}}) is old.", "A town is old.", 1, 0),
        ("Ada ({{x|y}} – 1982; a poet) wrote.", "Ada (a poet) wrote.", 1, 0),
        ("It is not defined at {{x}}. He was born in {{x}}. He left.", "He left.", 0, 2),
        ("It costs {{convert|{{x}}|km}}. It ends.", "It ends.", 0, 1),
        ("It is {{convert|9|km|mi|disp=output only}} long. It ends.", "It ends.", 0, 1),
        ("It is {{convert|9|and above|6|km}} long. It ends.", "It ends.", 0, 1),
        (
            "It is {{val|5|/|6|u=km}} long, {{val|" + "1" * 50_000 + "x}}. It ends.",
            "It ends.",
            0,
            1,
        ),
        # Or else the sentence.
        ("Highs of 22 - {{x}} and lows of 12 - {{x}}. It rains.", "It rains.", 0, 1),
        ("It has a density of {{x}} in 2011. It grows.", "It grows.", 0, 1),
        ("It costs ${{x}}. Dr. {{x}} left. He came.", "He came.", 0, 2),
        ("It lies {{convert|{{x}}|km}} away.", "", 0, 1),
        ("It is <math>x^2</math> here. And so on.", "And so on.", 0, 1),
        ("A law ({{x}}", "", 0, 1),
    ],
)
def test_what_cannot_be_read_takes_its_phrase_or_its_sentence(source, expected, phrases, sentences):
    extractor = Extractor()
    assert " ".join(extractor.paragraphs(source)) == expected
    found = extractor.counts["phrases dropped"], extractor.counts["sentences dropped"]
    assert found == (phrases, sentences)


def test_words_of_templates_are_counted_once():
    extractor = Extractor()
    extractor.paragraphs("It is {{nowrap|{{convert|5|km|mi}} long}} {{cn}}{{x}}.")
    assert extractor.counts["words of templates"] == 3


def test_a_table_of_the_users(tmp_path):
    path = tmp_path / "templates.txt"
    path.write_text(
        "# mine\n\nMy_town = {1} (pop. {2})[, {3}]\nnote to self =\nquoth = \\n{1}\\n\n"
    )
    own = inline_templates.read_table(path)
    assert own == {"my town": "{1} (pop. {2})[, {3}]", "note to self": "", "quoth": "\n{1}\n"}
    source = "Arlen, {{My town|A|5}} is {{note to self|x}} old. {{convert|5|km|mi}}"
    assert Extractor(templates=own).paragraphs(source) == ["Arlen, A (pop. 5) is old. 5 kilometres"]
    for line, complaint in [
        ("no pattern", "give NAME = PATTERN"),
        ("= {1}", "give NAME = PATTERN"),
        ("a = {1", "a brace or bracket of the pattern is empty, nested or not closed"),
        ("a = {}", "is empty, nested"),
        ("a|b = {1}", "'a|b' is no name of a template"),
        ("a = [{1}[{2}]]", "nested or not closed"),
        ("MY town = {1}", "the template 'my town' was there before"),
        ("a = {b|0}", "the first parameter is {1}, not {0}"),
    ]:
        path.write_text(f"my town = x\n{line}\n")
        with pytest.raises(
            UserError, match=f"line 2: {re.escape(complaint)}|line 2: .*{complaint[:20]}"
        ):
            inline_templates.read_table(path)
    path.write_bytes(b"a = \xff\n")
    with pytest.raises(UserError, match="line 1: not UTF-8"):
        inline_templates.read_table(path)
    with pytest.raises(UserError, match="no table of templates"):
        inline_templates.read_table(tmp_path / "absent")


def test_no_real_page_has_a_hole_left():
    for page in _articles("enwiki-20150305"):
        text = "".join(Extractor().paragraphs(page.text))
        assert not {holes.HOLE, holes.MAYBE_HOLE} & set(text), page.title


def test_a_quotation_is_a_paragraph():
    source = "She said:\n{{quote|text=Go [[home]].|author=Ada}}\nThey went."
    assert Extractor().paragraphs(source) == ["She said:", "Go home.", "They went."]


@pytest.mark.parametrize(
    "source, expected",
    [
        ("'''A''' is ''b'' [[c]] and [[d|e]]s.", ["A is b c and es."]),
        ("One.\nTwo.\n\nThree.", ["One. Two.", "Three."]),
        ("== Heading ==\nText.\n=== Sub ===\nMore.", ["Text.", "More."]),
        ("* item\n* [[other]] item\nText.\n# one\n: indented\n; term", ["Text."]),
        ("{{Infobox|a={{b|c}}\n|d=e}}Text{{cn}}.", ["Text."]),
        ("A<ref name=x>no</ref> b<ref name=x /> c.<!-- no -->", ["A b c."]),
        ("{| class=x\n| cell [[a]]\n|}\nText.", ["Text."]),
        ("[[File:a.jpg|thumb|A [[caption]].]]Text. [[Category:X]][[Image:b.png]]", ["Text."]),
        ("[[de:Wort]]Text [[:Category:X|shown]] [[:fr:Mot]].", ["Text shown fr:Mot."]),
        (
            "'''''A''''' and ''unclosed\nl'homme of ''Title'''s end",
            ["A and unclosed l'homme of Title's end"],
        ),
        ("See [http://a.b label] and [http://c.d] now.", ["See label and now."]),
        ("A&nbsp;b &amp; c &#233; &#xe9; &lt;.", ["A b & c é é <."]),
        (
            "Sum <br />next <small>small</small>",
            ["Sum", "next small"],
        ),
        ("<p class=a id=b>One</p><p>Two</p>", ["One", "Two"]),
        ("X (; born {{cn}} 1950) and ( ) [ ].", ["X (born 1950) and."]),
        (
            "10<sup>6</sup> per m<sup>2</sup>, 2 × 10{{sup|−7}} m, H{{sub|2}}O, log<sub>10</sub>2, "
            "20<sub>16</sub>, 1<sup>st</sup> (CO<sub>2,</sub>)",
            ["10^6 per m2, 2 × 10^−7 m, H2O, log10 2, 20_16, 1st (CO2)"],
        ),
        (
            "5.98{{e|24}} kg, 2{{x10^|3}} g, 10{{pm}}5, 3{{half}} years, A{{music|flat}}4",
            ["5.98×10^24 kg, 2×10^3 g, 10±5, 3 1/2 years, A♭4"],
        ),
        (
            "{{INRConvert|5|c}}, {{INRConvert|500}}, {{JPYConvert|2|b}}",
            ["₹5 crore, ₹500, ¥2 billion"],
        ),
        ("He was {{citation needed span|born in Rome|date=May}}.", ["He was born in Rome."]),
        ("5{{%}}, 3{{×}}4, 1984{{–}}85, {{nts|5}}", ["5%, 3×4, 1984–85, 5"]),
        (
            "In {{As of|2021|bare=y}} it was. {{As of|{{CURRENTYEAR}}}}, it is. {{dts|2001|May|9}} "
            "it is.",
            ["In 2021 it was. May 9, 2001 it is."],
        ),
        (
            "{{convert|10|m|ft|abbr=values}} m, a {{convert|9|ft|m|adj=mid|-long}} rope, "
            "{{convert|9|ft|m|adj=pre|good}}",
            ["10 m, a 9-foot-long rope, 9 good feet"],
        ),
        ("{{ill|de|Jan Piet}} or {{ill|Jan Piet|de|Jan P}}", ["Jan Piet or Jan Piet"]),
        (
            "It is 5.{{zz|3}} km. It was in 1995.{{zz}} There are approx. {{zz}} Germans.",
            ["It was in 1995."],
        ),
        (
            "1<sup>3</sup>/<sub>8</sub> in. of <sup>14</sup><sub>6</sub>C at 5,000.<sup>1</sup>",
            ["1 3/8 in. of 14_6C at 5,000."],
        ),
        (
            "It is located at {{zz|1}}. It is in {{zz}}. He was born in {{zz}}. "
            "It is {{IPAc-en|ɪ}} here. It is.",
            ["It is."],
        ),
        (
            "2<sup>''n''</sup>, 2<sup>''k''+1</sup>, 10<sup>.5</sup>, 60 cm.<sup>2</sup>, "
            "1<sup>st</sup>, {{val|5|end=%}}",
            ["2^n, 2^k+1, 10^.5, 60 cm.2, 1st, 5%"],
        ),
        ("It depends on {{zz|b}}. As shown in {{harv|S|2001}}, it grows. It is.", ["It is."]),
        (
            "{{convert|5.9|/sqmi|/km2}}, {{val|1.2|0.3|e=5}}, {{sic|hel|o}}, {{gaps|12|345}}",
            ["5.9 per square mile, (1.2±0.3)×10^5, helo, 12345"],
        ),
        ("{{As of|2021|pre=early}}, it is.", ["As of early 2021, it is."]),
        (
            'It is "{{zz|A}}" here. It led No. {{zz}} Squadron. The end. {{zz}} The rest.',
            ["The end. The rest."],
        ),
        # Templates that are not known: notes, but not in place of a word or of a part of one.
        (
            "One town{{zz}} is. It has 5{{zz}} men. A m{{zz}} is. A{{zz}}4 is. End.",
            ["One town is. End."],
        ),
        ("As {{harvnb|S|2001}} says, it is.{{harvnb|S|2001}} It was.", ["It was."]),
        (
            "L ({{IPAc-en|l}}; born 1970), pronounced {{respell|x}}, is. It is "
            "pronounced {{respell|L}}. L {{IPAc-en|l}} (pronounced {{IPA-de|l}}; born 1970) is.",
            ["L (born 1970) is. L (born 1970) is."],
        ),
        ("__NOTOC__\n----\n'''\n\n—", []),
        (
            "the {{lang|fr|mot juste}}, {{lang-el|λόγος}} and {{convert|5|km|mi|abbr=on}} away",
            ["the mot juste, Greek: λόγος and 5 km away"],
        ),
        ("a{{snd}}b{{mdash}}c, {{cn}}, {{sfn|z}} and d", ["a – b—c, and d"]),
        ("<nowiki>{{a}} [[b]]</nowiki> c", ["{{a}} [[b]] c"]),
        ("{{unclosed [[a|b", ["{{unclosed [[a|b"]),
        ("]] }} text </ref>", ["]] }} text"]),
        ("", []),
    ],
)
def test_prose(source, expected):
    assert Extractor().paragraphs(source) == expected


@pytest.mark.parametrize(
    "source, expected",
    [
        ("Text one <small>unclosed", ["Text one unclosed"]),
        ("A </SMALL > b <br", ["A b <br"]),
        ("<div style='x'>Div not closed", ["Div not closed"]),
        ("<p>One<p>Two", ["One", "Two"]),
        ("Ref <ref name=x>cited", ["Ref cited"]),
        ("<span a={{x}}&nbsp;>b [[c|<i>d]]", ["b d"]),
        ("A &lt;small> and &#60;b>", ["A <small> and <b>"]),
        ("A <nowiki><b> &lt;i></nowiki> <b>c", ["A <b> <i> c"]),
        ("1 <b> 2 < b > 3 <bc> 4 <a href=x>", ["1 2 < b > 3 <bc> 4 <a href=x>"]),
        ("If a <b and\n\nc > d", ["If a <b and", "c > d"]),
        ("One.\n\n" + "<b>" * 9999, ["One."]),
    ],
)
def test_tags_that_belong_to_no_pair_are_not_shown(source, expected):
    assert Extractor().paragraphs(source) == expected


def test_links_to_files_go_by_the_names_of_the_wiki():
    site = SiteInfo(namespaces={"": 0, "Datei": 6, "Kategorie": 14})
    text = "[[Datei:a.jpg|mini|nein]][[Kategorie:X]][[Image:a.jpg]][[Haus:a]] ja"
    assert Extractor(site.dropped_links).paragraphs(text) == ["Haus:a ja"]


@pytest.mark.parametrize(
    "title, text, expected",
    [
        ("A", "{{disambig}}", True),
        ("A", "x {{Disambiguation|geo}}", True),
        ("A", "{{hndis|x}}", True),
        ("A (disambiguation)", "", True),
        ("A", "{{Human name disambiguation}}", True),
        ("A", "{{For|b|A (disambiguation)}} {{dablink|x}}", False),
        ("A", "{{other uses}}", False),
        ("A", "__DISAMBIG__", True),
    ],
)
def test_disambiguation(title, text, expected):
    assert is_disambiguation(title, text) is expected


def test_sections_are_the_page_and_cut_nothing_open():
    text = "Lead {{a|\n== b ==\n}}\n== One ==\nx <ref>\n== no ==\n</ref>\n=== Sub ===\ny\n"
    text += "== Two ==\nz<!--\n== q ==\n"
    parts = list(sections(text))
    assert "".join(parts) == text
    assert [p.split("\n")[0] for p in parts] == ["Lead {{a|", "== One ==", "== Two =="]


@pytest.mark.parametrize(
    "unit",
    [
        "{{",
        "{{a|",
        "[[",
        "[[File:x|",
        "<b>",
        "<ref>x",
        "{|\n",
        "[http://a ",
        "''a",
        "&#",
        "<!--",
        "{{[[<b>{|\n",
        "== a\n",
        "== h ==\n{{a\n",
        "a<!-- b -->",
        "<br>",
        "<li>a\n",
    ],
)
def test_vandalism_takes_no_quadratic_time(unit):
    text = "Before it.\n\n" + unit * 20_000
    start = time.process_time()
    found = Extractor().paragraphs(text)
    assert time.process_time() - start < 2.5 and found[0].startswith("Before it.")


@pytest.mark.parametrize(
    "source, expected",
    [
        ("a<!-- b -->c<!-- d", ["ac"]),
        ("<!---->a --> b", ["a --> b"]),
        ("<!-- a", []),
    ],
)
def test_comments(source, expected):
    assert Extractor().paragraphs(source) == expected


_MARKS = (holes.HOLE, holes.MAYBE_HOLE, holes.SOUND, *wikitext._SCRIPTS.values(), wikitext._AFTER)


def _tree_text(code):
    """The same prose by the public tree of nodes: slow, and written without the walk's code."""
    out = []
    for node in code.nodes:
        if isinstance(node, nodes.Text):
            out.append(node.value)
        elif isinstance(node, nodes.Wikilink):
            prefix = str(node.title).strip().partition(":")
            name = prefix[0].strip().lower().replace("_", " ")
            dropped = name in ("file", "image", "category", "media") or (
                len(name) in (2, 3) and name.isascii() and name.isalpha()
            )
            if prefix[1] and dropped:
                continue
            shown = node.title if node.text is None else node.text
            out.append(
                _tree_text(shown)
                if node.text is not None
                else str(_tree_text(shown)).strip().removeprefix(":")
            )
        elif isinstance(node, nodes.ExternalLink):
            out.append(_tree_text(node.title) if node.title is not None else "")
        elif isinstance(node, nodes.HTMLEntity):
            out.append(node.normalize())
        elif isinstance(node, nodes.Heading):
            out.append("\n\n")
        elif isinstance(node, nodes.Template):
            out.append(_shown(node))
        elif isinstance(node, nodes.Tag):
            out.append(_tag(node))
    return "".join(out)


def _shown(node):
    name = str(node.name).strip().lower().replace("_", " ")
    if not node.params:
        return inline_templates.sign(name) or ""
    reader = inline_templates.reader(name)
    texts = [(p, _tree_text(p.value).strip()) for p in node.params]
    unnamed = [text for p, text in texts if not p.showkey]
    named = {str(p.name).strip().lower(): text for p, text in texts if p.showkey}
    return reader(unnamed, named) if reader else ""


def _tag(node):
    name = str(node.tag).strip().lower()
    if node.wiki_markup and node.self_closing and node.wiki_markup[0] in "*#:;":
        return "\0"
    text = ""
    if not node.self_closing and name not in wikitext._DROPPED_TAGS:
        text = _tree_text(node.contents)
    return f"\n\n{text}\n\n" if name in wikitext._BLOCK_TAGS else text


def _articles(name):
    pages = read_pages(wikipedia_excerpt(name))
    return [p for p in pages if not p.redirect and p.namespace == 0]


def test_the_walk_over_tokens_gives_the_text_of_the_tree():
    parser = mwparserfromhell.parser.Parser
    for page in random.Random(0).sample(_articles("enwiki-20160501"), 4):
        tokens = parser()._tokenizer.tokenize(page.text, 0, True)
        tree = mwparserfromhell.parse(page.text, skip_style_tags=True)
        walked = Extractor()._read(iter(tokens), ()).replace(wikitext._LESS, "<")
        unmarked = str.maketrans("", "", "".join(_MARKS))
        assert walked.translate(unmarked) == _tree_text(tree).translate(unmarked), page.title


def test_cutting_into_sections_changes_nothing():
    extractor, cut = Extractor(), 0
    for page in _articles("enwiki-20150305")[:10]:
        cache = {}
        parts = extractor.paragraphs(page.text, cache)
        assert parts == extractor.paragraphs(page.text, cache), page.title
        assert parts == extractor._section(page.text), page.title
        cut += len(cache) > 5
    assert cut >= 7


AWKWARD = [
    "A<ref>b</ref> c<ref name=x/> d<ref name='a/b'>{{cite|[[e]]}}</ref >.",
    "A<ref>b <ref>c</ref> d</ref> e. <ref>f g [[h]] i",
    "<nowiki>[[a]] <ref>b</ref></nowiki> c [[d]].",
    "[[a b]]s, [[a|''b'']]c, [[ a ]], [[:a]], [[#a|b]], [[a|*b]], [[A=b]] and [[a/b]].",
    "{{convert|1|[[Kilometre|km]]}} and {{lang|fr|[[le|la]]}}, {{x|[[E=mc]]}} [[a {{b}} c|d]].",
    "[[a|b [[c]] d]] [[File:x.jpg|thumb|see [[e|f]] and<ref>g</ref>]] [http://x.y [[z]] w].",
    "* [[a]]\n[[b|c]]\n: [[d]]\n\n[[e]]<!-- [[f]] <ref> --> g</ref> h.",
    "[[a|b\nc]] d [[e\nf]] g. [[h&nbsp;i|j&lt;k]] [[l&m]] 5 < 6 [[n]].",
    "{{Infobox x\n| a = {{convert|1|km}}\n| b = {{y|{{z}}}}\n}}\nA {{y|b}} c{{cn|date=d}} {{ y }}.",
    "{{convert|1|{{y}}}} {{lang|fr|a {{y|b}} c}} {{y|{{lang|fr|d}}}} {{!}} e {{y_z|f}}.",
    "{{y|a {{z|b}} and {{convert|1|km}} c. {{{d|e}}} {{#if:f|g}} {{formatnum:9}} }} {{}} {{|}}.",
    "a\n{| class=x\n|-\n| b {{y}} || c\n{|\n| d\n|}\n|}\ne {| f |} g\n|}\nh\n\n{|\n| i",
    "a {{y<ref>b</ref>|c}} d {{y[[e]]|f}} g {{y\nz|h}} i {{y=z}} j {{y&amp;z|k}} <b {{y|l}}>m</b>.",
]


def unchanged_by_shortcut(texts):
    with pytest.MonkeyPatch.context() as m:
        found = [Extractor().paragraphs(text) for text in texts]
        m.setattr(Extractor, "_shorter", lambda self, text: text)
        return [p == Extractor().paragraphs(text) for p, text in zip(found, texts, strict=True)]


def test_what_is_read_without_the_tokenizer_is_the_same():
    assert unchanged_by_shortcut(AWKWARD) == [True] * len(AWKWARD)


@pytest.mark.parametrize("name", ["enwiki-20150305", "enwiki-20160501"])
def test_so_it_is_on_real_pages(name):
    texts = [page.text for page in _articles(name)[:60]]
    assert all(unchanged_by_shortcut(texts))
