"""Templates within sentences: what a reader sees of them, or their sentence is dropped."""

import re

import pytest

pytest.importorskip("mwparserfromhell", reason="needs the extra `data`")

from ckl_jax.errors import UserError
from ckl_jax.papers.temporalwiki.data import inline_templates
from ckl_jax.papers.temporalwiki.data.wikitext import Extractor


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
            "2 to 1×10^6 kilometres, 5, 6, and 7 kilometres",
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
            "No breaks{{Clarify|x}}in it.{{cn}} So {{cn}} it{{cn}}, is.",
            "No breaks in it. So it, is.",
        ),
        ("600<span style='display: none'>0</span> in {{script|Hebr|q}}", "600 in q"),
        (
            "{{nihongo3|E|K|R}}, {{nihongo krt|E|K|R}}, {{nihongo|E|K|R|x|y}}",
            "R (K, E), K (R, E), E (K, R, x) y",
        ),
        (
            "{{lang-ru|W|Vest|lit=news}}, {{zh|c=C|p=P|l=x}}, {{zh|t=T|labels=no}}",
            "Russian: W, romanized: Vest, lit. 'news', Chinese: C; pinyin: P; lit. 'x', T",
        ),
        (
            "{{convert|1.0|km}}, {{convert|-1|m}}, {{val|1.5e6|u=kg}}, {{flag|Georgia (country)}}",
            "1.0 kilometre, -1 metre, 1.5×10^6 kg, Georgia",
        ),
        (
            "{{birth date|1950|3|4|df=true}}, {{korean|hangul=H|rr=R}}",
            "4 March 1950, Korean: H; RR: R",
        ),
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
            "It has over{{Unk|5}} km. Height:{{Unk|5}} at most. He ate the{{Unk|cat}} in May. It "
            "cost USD{{Unk|5}} then. It is 5.{{Unk}} So.{{Unk}} Yes.",
            "It is 5. So. Yes.",
        ),
        ("{{convert|9|km|disp=or}} {{convert|9|km|disp=x|a|b}}", "9 kilometres 9 kilometres"),
        (
            "Rome ({{lang-la|Roma}}, {{IPA-la|ro}}) and Oslo (see; {{IPA-no|o}})",
            "Rome (Latin: Roma) and Oslo (see)",
        ),
        ("{{height|ft=6|in=2+1/2}}", "6 ft 2 1/2 in"),
        (
            "{{val|90|u=deg}}, {{val|20|u=degC}}, {{val|5|u=um}}, {{val|5|ul=uW}}, {{val|5|u=Ohm}}",
            "90°, 20 °C, 5 μm, 5 μW, 5 Ω",
        ),
        (
            "{{val|1.4|u=Msun}}, {{val|12|ul=arcmin}}, {{val|3|u=C}}, {{val|4|u=MeV|up=c2}}",
            "1.4 M☉, 12′, 3 C, 4 MeV/c2",
        ),
        (
            "{{val|5|u=m.s-2}}, {{val|5|u=kg.m/s2}}, {{val|2|u=m s<sup>−1</sup>}}",
            "5 m⋅s−2, 5 kg⋅m/s2, 2 m s−1",
        ),
        (
            "{{val|3|u=grams}}, {{val|10|-30|+20|u=%}}. It has {{val|5|u=smoot}} of it.",
            "3 grams, 10+20−30%.",
        ),
        (
            "{{convert|5+1/2|lb|kg}}, {{convert|2|-|2+1/2|in|mm}}, {{convert|5e3|lb}}",
            "5 1/2 pounds, 2–2 1/2 inches, 5×10^3 pounds",
        ),
        (
            "{{convert|5|km|mi|adj=pre|big|disp=x| [|]}}, {{convert|30|°C|abbr=off}}, "
            "{{convert|1|mi|spell=in}}, {{convert|1000|km|comma=off}}",
            "5 big kilometres, 30 degrees Celsius, one mile, 1000 kilometres",
        ),
        (
            "{{chem|235|92|U}}, {{chem|SO|4|2-}}, {{chem2|^{235}U|}}, {{chem2|SO4(2-)}}, "
            "{{chem2|Fe(3+)}}, Si<sub>4</sub><sup>4−</sup>",
            "235_92U, SO4^2-, 235U, SO4^2-, Fe3+, Si4^4−",
        ),
        ("{{visible anchor|A|text=B}} {{vanchor|A|B|text=''D''}}", "B D"),
        ("{{wikt-lang|fr|chat|chats}} {{wikt-lang|fr|chat}} {{ins|new}}", "chats chat new"),
        ("{{INS|Vikrant|R22}} won. The {{ss|text}} is.", "INS Vikrant (R22) won."),
        (
            "{{dts|-44|3|15}}, {{dts|format=dmy|2010|5|3}}, {{date|2010-05-03|mdy}}, "
            "{{date|2010-05-03}}, {{date|3 May 2010}}",
            "March 15, 44 BC, 3 May 2010, May 3, 2010, 3 May 2010, 3 May 2010",
        ),
        (
            "{{lang-grc-gre|a}}, {{lang-gle|b}}, {{lang-aln|c}}, {{lang-sr-Cyrl|d}}, "
            "{{langx|mn-Cyrl|e}}",
            "Ancient Greek: a, Irish: b, Gheg Albanian: c, Serbian Cyrillic: d, Mongolian: e",
        ),
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
        ("It is {{convert|9|km|mi|disp=preunit|+ }} long. It ends.", "It ends.", 0, 1),
        ("It is {{convert|9.46|km|mi|adj=ri0}} long. It ends.", "It ends.", 0, 1),
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
        # A stop of an abbreviation, or a sign, does not leave half of it.
        ("Of <code>!</code> the pairs 1! and 0) came {{x}}. It ends.", "It ends.", 0, 1),
        ("The peak, elev. {{x|5}} m, is in Asia. It ends.", "It ends.", 0, 1),
        ("Of A. b var. {{x|c}} there is much. It ends.", "It ends.", 0, 1),
        ("It took 5 min. {{flag|FRA}} lost. It ends.", "It ends.", 0, 1),
        ("He saw <code>!</code> but 1! and 0) pairs came. It ends.", "It ends.", 0, 1),
        ("Foo {{lang-es|hola|lit=hi}} has {{x}} of them. It ends.", "It ends.", 0, 1),
        ("It has {{x}}, {{lang-ru|a|b|hi there}}, which is odd. It ends.", "It ends.", 0, 1),
        ("The {{zh|s=中|l=middle}} has {{x}} of them. It ends.", "It ends.", 0, 1),
        (
            "In {{abbr|St.|x}} {{abbr|Vol.|y}} 5 the {{x}} is. Vol. 6 is.",
            "Vol. 6 is.",
            0,
            1,
        ),
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
        "# mine\n\nMy_town = {1} (pop. {2})[, {3}]\nnote to self =\nquoth = \\n{1}\\n\nuss = {1}\n"
    )
    own = inline_templates.read_table(path)
    assert own == {
        "my town": "{1} (pop. {2})[, {3}]",
        "note to self": "",
        "quoth": "\n{1}\n",
        "uss": "{1}",
    }
    source = "Arlen, {{My town|A|5}} is {{note to self|x}} old. {{convert|5|km|mi}} {{USS|X}}"
    assert Extractor(templates=own).paragraphs(source) == [
        "Arlen, A (pop. 5) is old. 5 kilometres X"
    ]
    for line, complaint in [
        ("no pattern", "give NAME = PATTERN"),
        ("= {1}", "give NAME = PATTERN"),
        ("a = {1", "a brace or bracket of the pattern is empty, nested or not closed"),
        ("a = {}", "is empty, nested"),
        ("a|b = {1}", "'a|b' is no name of a template"),
        ("star * = S{1}", "'star *' is no name of a template"),
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


def test_a_quotation_is_a_paragraph():
    source = "She said:\n{{quote|text=Go [[home]].|author=Ada}}\nThey went."
    assert Extractor().paragraphs(source) == ["She said:", "Go home.", "They went."]
