"""The prose of wikitext, and that the token walk gives what the library's tree gives."""

import random
import time

import pytest

pytest.importorskip("mwparserfromhell", reason="needs the extra `data`")

import mwparserfromhell
from mwparserfromhell import nodes

from ckl_jax.papers.temporalwiki.data import holes, inline_templates, measures, wikitext
from ckl_jax.papers.temporalwiki.data.wiki_xml import SiteInfo, read_pages
from ckl_jax.papers.temporalwiki.data.wikitext import Extractor, is_disambiguation, sections
from tests.real_data import wikipedia_excerpt


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
        ("See [http://a.b label] now [http://c.d] again.", ["See label now again."]),
        ("It ended [http://a.b/c (http://a.b/c)]. [http://a.b On www.a.b] it is.", ["It ended."]),
        (
            "It ended. See [http://a.b] for it. So ([http://a.b http://c.d]) it is.",
            ["It ended. So it is."],
        ),
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
        # Tables of which a template is the beginning or the end, or that do not end.
        (
            'A.\n\n{| class="wikitable"\n|-\n! Year !! Film\n| 2001 || B\n{{end}}\nIt is.',
            ["A.", "It is."],
        ),
        ("{{Awards table}}\n|-\n|2001\n  | [[Oscar]]\n|}\n\nIt was.", ["It was."]),
        ("!Kung people are.\n\n!!! is a band.", ["!Kung people are.", "!!! is a band."]),
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
    ("language", "source", "expected"),
    [
        # What is not known may have begun the sentence, unless a capital follows it.
        ("ru", "Это было тут. {{число|25}} человек живут тут. Да.", "Это было тут. Да."),
        ("ru", "Высота 25.{{число|5}} метров. Да.", "Да."),
        ("fr", "Il part. {{unk|Paris}} était une ville. {{note}} Été.", "Il part. Été."),
        ("ja", "{{読み仮名|織田|おだ}}は、武将である。次の文。", "次の文。"),
        ("hi", "{{अज्ञात|राम}}ने कहा।", ""),
        ("en", "{{unk|12}}-year-old men. {{unk|T}} (born 1950) was. {{unk}} It is.", "It is."),
        # English templates say other things elsewhere.
        ("fr", "Né le {{date|5|mai|2010}} ici. Fin.", "Fin."),
        ("hi", "नगर {{convert|10|km|mi}} दूर है।", ""),
        ("fr", "La {{lang|en|big}} ville est.", "La big ville est."),
        ("de", "Es sind {{formatnum:3223}} auf {{formatnum:3.5}} km². Ja.", "Ja."),
        ("de", "Es sind {{formatnum:3223}} hier.", "Es sind 3223 hier."),
        # The sentence of a hole goes with its titles and initials.
        ("fr", "Oui. M. Dupont est né le {{date|5|mai|1970}}. Mme. X.", "Oui. Mme. X."),
        ("de", "Der hl. Martin kam am {{unbek|5}} an. Ja.", "Ja."),
        (
            "zh",
            "-{T|zh-hans:北京;zh-hant:北京市}-北京是-{zh-cn:网络;zh-tw:網路}-的。他是-{王}-先生。",
            "北京是网络的。他是王先生。",
        ),
        ("sr", "-{Windows}- je -{sr-ec:реч; sr-el:reč}-.", "Windows je реч."),
        ("en", "The -{H}- ion.", "The -{H}- ion."),
        (
            "ja",
            "東京（とうきょう、{{IPA-ja|x}}）は（{{IPA-ja|x}}）都市。",
            "東京（とうきょう）は都市。",
        ),
    ],
)
def test_prose_of_other_languages(language, source, expected):
    assert "".join(Extractor(language=language).paragraphs(source)) == expected


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


@pytest.mark.parametrize(
    "source, expected",
    [
        (":{| class=x\n| a\n|}\nHe ran.", ["He ran."]),
        ("  {|\n| {{x|\n|}} b\n |}\nHe ran.", ["He ran."]),
        ("'''Foo''''s bar.", ["Foo's bar."]),
        ("''''A''' '''''''b''''' c.", ["'A ''b c."]),
        ("It is <nowiki>''</nowiki> here.", ["It is '' here."]),
        ("See [[Media:Foo.ogg|the sound]] now.", ["See the sound now."]),
        ("__NOTOC__The __FILE__ is here.__NOINDEX__", ["The __FILE__ is here."]),
        ("The Donau&shy;dampf\u200b is&lrm; here.", ["The Donaudampf is here."]),
    ],
)
def test_markup_is_read_as_mediawiki_does(source, expected):
    assert Extractor().paragraphs(source) == expected


def test_links_to_files_go_by_the_names_of_the_wiki():
    site = SiteInfo(namespaces={"": 0, "Datei": 6, "Kategorie": 14})
    text = "[[Datei:a.jpg|mini|nein]][[Kategorie:X]][[Image:a.jpg]][[Haus:a]] ja"
    assert Extractor(site.dropped_links).paragraphs(text) == ["Haus:a ja"]
    older = "[[Bild:A b.JPG|mini|nein]] [[:Bild:a.jpg|ein Bild]] in [[Akte: X]] ja"
    assert Extractor(site.dropped_links).paragraphs(older) == ["ein Bild in Akte: X ja"]


def test_links_to_other_languages_are_dropped_and_other_prefixes_are_not():
    text = "He plays [[CSI: Miami]], [[XXX: Return|XXX]] and [[UFO:A]] [[:fr:Titre]].\n\n"
    links = "[[fr:Titre]]\n[[zh-min-nan:A]]\n[[simple:A]] [[Be-x-old:A]]"
    expected = ["He plays CSI: Miami, XXX and UFO:A fr:Titre."]
    assert Extractor().paragraphs(text + links) == expected


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


_MARKS = (
    holes.HOLE,
    holes.MAYBE_HOLE,
    holes.SOUND,
    holes.NOTE,
    *wikitext._SCRIPTS.values(),
    measures.AFTER,
)


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
    name = inline_templates.template_name(str(node.name))
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


def test_no_real_page_has_a_hole_left():
    for page in _articles("enwiki-20150305"):
        text = "".join(Extractor().paragraphs(page.text))
        assert not {holes.HOLE, holes.MAYBE_HOLE} & set(text), page.title


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
