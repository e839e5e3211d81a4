"""Converts wikitext to paragraphs of prose with mwparserfromhell's tokenizer.

Kept is what reads as running text: paragraphs with the labels of their links, and the text of
templates within sentences (`inline_templates`). A template within a sentence that cannot be read
takes its bracket with it, or its sentence (`holes`). Dropped are other templates, tables, lists,
headings, references, files, categories, galleries and formulae, as WikiExtractor drops them for the
paper's texts.

mwparserfromhell builds a tree of nodes out of its tokens, in which it spends nine tenths of its
time. The tokens are enough here; a test holds the result to that of the tree.
"""

import collections
import html
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from types import MappingProxyType
from typing import Any

from ckl_jax.errors import if_missing
from ckl_jax.papers.temporalwiki.data import inline_templates
from ckl_jax.papers.temporalwiki.data.holes import HOLE, MAYBE_HOLE, NOTE, SOUND, HoleFiller
from ckl_jax.papers.temporalwiki.data.measures import AFTER, INDEX, NO_SCRIPTS, PLUS, POWER
from ckl_jax.papers.temporalwiki.data.wiki_xml import SiteInfo

_DROPPED_TAGS = frozenset(
    "ref references table gallery math chem ce timeline score syntaxhighlight source graph "
    "imagemap hiero mapframe maplink templatedata section inputbox categorytree templatestyles "
    "style script ul ol dl pre includeonly".split()
)
# Dropped, but within sentences.
_WORD_TAGS = frozenset("math chem ce hiero score source syntaxhighlight".split())
_BLOCK_TAGS = frozenset("p div blockquote center br hr poem table tr td th h1 h2 h3 h4".split())
# What is in no XML: \0 marks a list item's line, \1 is a "<" that is shown and so begins no tag;
# \5 is an apostrophe that marks no italics; `holes` has four more.
_LIST, _LESS, _APOSTROPHE = "\0", "\1", "\5"
# Languages whose wikis are shown in one of several scripts or vocabularies: -{zh-cn:A;zh-tw:B}-.
_OF_VARIANTS = frozenset("ban crh gan iu kk ku sh shi sr tg tly uz wuu zgh zh".split())
_VARIANTS = re.compile(r"-\{(?!\{)(?:([^{}|]*)\|)?([^{}]*)\}-")
_VARIANT = re.compile(r"^\s*(?:[\w-]+\s*=>|[\w-]+\s*:(?!//))?\s*")
_SHARED = frozenset(("lang", "nowrap", "nobr"))  # templates of most wikis, with one meaning
_HEADER = re.compile(r"!(?:\s|[^!]+!!)")  # of a table's columns, and no "!Kung" or "!!!"
_NO_HOLES = str.maketrans("", "", HOLE + MAYBE_HOLE + SOUND + NOTE)
_LED_TO = re.compile(rf"\b(?i:see|visit|at|from|via|to|of|in|on) {NOTE}")
_GLUED = re.compile(rf"(?<=\w){NOTE}+(?=\w)")
_HIDDEN = re.compile(r"display\s*:\s*none")
_LIST_MARKUP = ("*", "#", ":", ";")
_SWITCHES = re.compile(
    "__(?:(?:NO|FORCE)?TOC|NOEDITSECTION|(?:NO)?NEWSECTIONLINK|NOGALLERY|HIDDENCAT|(?:NO)?INDEX|NOCC|"
    "NOCONTENTCONVERT|NOTC|NOTITLECONVERT|STATICREDIRECT|DISAMBIG|EXPECTUNUSED(?:CATEGORY|TEMPLATE)|"
    "EXPECTWITHOUTSCANS|ARCHIVEDTALK|NOTALK|NOGLOBAL)__"
)
_INVISIBLE = re.compile("[\u00ad\u200b\u200e\u200f\u2060\ufeff]")
# `re` looks for a literal beginning first, which is much faster. So only names of tags are without
# case, not their "<", and headings begin with the end of the line before.
_EMPTY = re.compile(r"[(\[][ ,;:/–-]*[)\]]")
_EMPTY_BRACKETS = re.compile(r"(?: |(?<!\w))\([ ,;:/–-]*\)|\([ ,;:/–-]+\)| ?\[ *\]")  # not main()
# What a dropped template leaves within full-width brackets: commas and blanks.
_WIDE_REST = "[ ,;:/\u2013\u3001\uff0c\uff1b\uff1a-]+"
_WIDE_BRACKETS = re.compile(f"(\uff08){_WIDE_REST}|{_WIDE_REST}(\uff09)")
_OPENING_REST = re.compile(r"([(\[])\s*[,;:]\s*(?:[,;:]\s*)*")
_CLOSING = re.compile(r"[ ,;][)\]]")
_CLOSING_REST = re.compile(r"(?<![ ,;:])[ ,;:]*[ ,;](?=[)\]])")
_WHOLE = re.compile(rf"(?<=\d){PLUS}")
_POWER = re.compile(
    rf"(?<=\d){AFTER}?{POWER}(?={PLUS}?[-−–+]?(?:[\d.]|[a-zA-Z](?:{AFTER}|[-−–+\d])))"
)
_BASE, _NEXT = re.compile(rf"(?<=\d){AFTER}?{INDEX}(?=\d)"), re.compile(rf"(?<=\d){AFTER}(?=\d)")
_SCRIPT_FRACTION = re.compile(rf"{POWER}(\d+){AFTER}[/⁄]{INDEX}(\d+){AFTER}")
_NOTE_NUMBER = re.compile(
    rf"(?:(?<=[^\W\d_]{{3}}[.,;])|(?<=\d[.,;])){POWER}\d+{AFTER}"
)  # of a note, behind its sentence
_SCRIPTS = {"sup": POWER, "sub": INDEX}
_COMMAS = re.compile(r",(?: *,)+")
_STOP_BEHIND_BLANK = re.compile(r" [,.;:!?]")
_BEFORE_STOP = re.compile(r" +([,.;:!?])(?= |$)")
_QUOTES = re.compile(r"'{2,}")
_POSSESSIVE = re.compile(r"(?<=[^\s'])'''(?=s\b)")
_HEADING = re.compile(r"\n(==(?!=).*?==[ \t]*)$", re.MULTILINE)
_PAIRS = (("{{", "}}"), ("<!--", "-->"), ("<ref", "</ref"))
_TABLE_START = re.compile(r"^[ \t:]*\{\|", re.MULTILINE)
_TABLE_END = re.compile(r"^[ \t]*\|\}(?!\})", re.MULTILINE)
_SELF_CLOSED_REF = re.compile(r"<(?i:ref)\b[^<>]*/>")
_DISAMBIGUATION = re.compile(
    r"\{\{\s*(?:(?:[\w -]+ )?disambig(?:uation)?(?: page| cleanup)?|dab|hndis|geodis|"
    r"(?:hn|geo|human name |place name |species |letter|school|road|callsign |airport )"
    r"dis(?:ambig(?:uation)?)?|disamb|mathdab|roaddis|sia|surname disambig)\s*[|}]"
    r"|__DISAMBIG__",
    re.IGNORECASE,
)

# Elements that a page may use: what is left of one that is not closed is not shown. On one line
# only: where a "<" is not a tag, the next ">" may be paragraphs away.
_LEFT_TAG = re.compile(
    r"</?(abbr|b|bdi|bdo|big|blockquote|br|caption|center|cite|code|data|dd|del|dfn|div|dl|dt|em|"
    r"font|h[1-6]|hr|i|ins|kbd|li|link|mark|meta|ol|p|pre|q|rb|ref|references|rp|rt|rtc|ruby|s|"
    r"samp|small|span|strike|strong|sub|sup|table|td|th|time|tr|tt|u|ul|var|wbr)(?=[\s/>])"
    r"[^<>\n]*>",
    re.IGNORECASE,
)

_MEDIA = frozenset(
    "jpg jpeg png gif svg tif tiff webp xcf pdf djvu mid mp3 wav flac ogg oga ogv opus webm".split()
)
# How wikis name "Media:", whose links are words of the text.
_LINKED_MEDIA = frozenset(
    "media medium média mèdia medio multimédia mídia medya médiá медиа медіа медия медиј μέσο "
    "メディア 媒体 媒體 미디어 מדיה وسائط رسانه".split()
)
_ADDRESS = re.compile(r"\w://\w|\bwww\.\w")
_UNCLOSED = 50  # more than these in a section are not a slip
_PAIRED_TAG = re.compile(r"<(?i:(?!(?:br|hr|wbr|li|p|td|tr|th|dd|dt)\b)[a-z])")

# What is read without the tokenizer, which takes most of the time: references, and links without
# markup within; templates of which nothing is shown, and tables.
_REFERENCE = re.compile(r"<(?i:ref\b[^<>]*(?:/>|>[^<]*(?:<(?!/?ref\b)[^<]*)*</ref\s*>))")
_LINK = re.compile(r"\[\[(?![*#:; ])([^\[\]{}<>|\n:=/&]+)(?:\|(?![*#:;])([^\[\]{}<>|\n=/]+))?\]\]")
_BRACES = re.compile(r"\{\{|\}\}")
_NAME = re.compile(r"\s*([^{}|<>\[\]\n#:&=]*[^{}|<>\[\]\n#:&=\s])\s*(?=\||\}\})")
_TABLE = re.compile(r"^[ \t:]*\{\|(?!\})|^[ \t]*\|\}(?!\})", re.MULTILINE)
_SHOWN_AS_IS = re.compile(r"<(?i:nowiki|pre|source|syntaxhighlight|math|chem|ce)\b")

Cache = MutableMapping[str, list[str]]


def is_disambiguation(title: str, text: str) -> bool:
    """Whether an (English) page lists the meanings of its title."""
    return title.endswith(" (disambiguation)") or _DISAMBIGUATION.search(text) is not None


class Extractor:
    """Wikitext to paragraphs, for one wiki.

    Attributes:
      counts: words of templates, and phrases and sentences dropped with those that are not read.
    """

    def __init__(
        self,
        dropped_links: frozenset[str] | None = None,
        language: str = "en",
        templates: Mapping[str, str] = MappingProxyType({}),
    ):
        """Loads the tokenizer.

        Args:
          dropped_links: `SiteInfo.dropped_links`; None: English names.
          language: of the text. Templates of another one than English are not known, but for a
            few and the user's.
          templates: the user's (`inline_templates.read_table`).

        Raises:
          UserError: the library is not installed.
        """
        with if_missing(
            "Reading wikitext needs the package mwparserfromhell; pip install 'ckl-jax[data]'."
        ):
            from mwparserfromhell.parser import Parser, tokens
        self._parser, self._templates = Parser, templates
        self.counts: collections.Counter[str] = collections.Counter()
        self._holes = HoleFiller(language, self.counts)
        self._is_english = language.partition("-")[0] in ("en", "simple")
        self._has_variants = language.partition("-")[0] in _OF_VARIANTS
        self._dropped = SiteInfo().dropped_links if dropped_links is None else dropped_links
        self._t = t = tokens
        self._parameter_ends = (t.TemplateParamSeparator, t.TemplateClose)
        self._readers = {
            t.TemplateOpen: self._template,
            t.WikilinkOpen: self._link,
            t.ExternalLinkOpen: self._url,
            t.HTMLEntityStart: self._entity,
            t.TagOpenOpen: self._tag,
            t.ArgumentOpen: self._argument,
            t.CommentStart: lambda token, rest: _skip(rest, t.CommentStart, (t.CommentEnd,)),
            t.HeadingStart: self._heading,
        }
        self._end: Any = None  # type of the token that ended the last `_read`

    def paragraphs(self, wikitext: str, cache: Cache | None = None) -> list[str]:
        """Returns the paragraphs, with single blanks; none is empty.

        Args:
          cache: results by section, which two versions of a page mostly share.
        """
        paragraphs: list[str] = []
        for section in sections(wikitext):
            if cache is None:
                paragraphs += self._section(section)
                continue
            if section not in cache:
                cache[section] = self._section(section)
            paragraphs += cache[section]
        return paragraphs

    def _section(self, wikitext: str) -> list[str]:
        wikitext = _without_comments(wikitext)
        if self._has_variants:
            wikitext = _VARIANTS.sub(_one_variant, wikitext)
        wikitext = _defused(self._shorter(wikitext))
        # The third argument leaves the apostrophes of bold and italics to `_unquoted`, which ends
        # them with the line as MediaWiki does.
        tokens = iter(self._parser()._tokenizer.tokenize(wikitext, 0, True))
        text = _without_tags(self._read(tokens, ())).replace(_LESS, "<")
        return list(_clean(text, self._holes))

    def _shorter(self, text: str) -> str:
        """The same text with fewer tokens, of all but what is shown as it is."""
        if _SHOWN_AS_IS.search(text):
            return text
        text = _LINK.sub(lambda link: link[2] or link[1].strip(), _REFERENCE.sub("", text))
        return _without_tables(self._without_unread(text))

    def _without_unread(self, text: str) -> str:
        """The same text, in which templates that are not read stand as `_template` reads them."""
        if "{{" not in text or "{{{" in text:
            return text
        begins: list[int] = []
        unread: list[tuple[int, int, str]] = []
        for braces in _BRACES.finditer(text):
            if braces[0] == "{{":
                begins.append(braces.start())
            elif begins:
                begin = begins.pop()
                shown = self._shown_unread(text, begin + 2, braces.start())
                if shown is not None:
                    while unread and unread[-1][0] > begin:  # those within it
                        unread.pop()
                    unread.append((begin, braces.end(), shown))
        kept, last = [], 0
        for begin, end, shown in unread:
            kept += text[last:begin], shown
            last = end
        return "".join(kept) + text[last:]

    def _shown_unread(self, text: str, begin: int, end: int) -> str | None:
        """What the template in `text[begin:end]` shows if it is not read, else None."""
        if not (match := _NAME.match(text, begin, end + 2)):
            return None
        name = inline_templates.template_name(match[1])
        if name in self._templates or self._reader(name):
            return None
        is_sign = match.end() == end and self._sign(name) is not None
        return None if is_sign else _unread(name)

    def _reader(self, name: str) -> Callable[..., str] | None:
        is_known = self._is_english or name in _SHARED
        return inline_templates.reader(name) if is_known else None

    def _sign(self, name: str) -> str | None:
        if name.startswith("formatnum:") and not self._is_english:  # with marks of its own
            number = name.removeprefix("formatnum:").strip()
            return number if number.isdecimal() else None
        sign = inline_templates.sign(name)
        is_word = sign is not None and any(map(str.isalpha, sign))
        return None if is_word and not self._is_english else sign

    # Each reader takes the token that opens a construct and the iterator behind it, reads to the
    # construct's end and returns its text.

    def _read(self, rest: Iterator, ends: tuple) -> str:
        """The text until a token of one of the types `ends`."""
        out, text, readers = [], self._t.Text, self._readers
        for token in rest:
            kind = type(token)
            if kind is text:
                out.append(token["text"])
            elif kind in ends:
                self._end = kind
                break
            elif kind in readers:
                out.append(readers[kind](token, rest))
        else:
            self._end = None
        return "".join(out)

    def _template(self, token, rest: Iterator) -> str:
        name = inline_templates.template_name(self._read(rest, self._parameter_ends))
        words = self.counts["words of templates"]
        text = self._template_text(name, rest)
        # Of nested templates only the outer one counts.
        self.counts["words of templates"] = words + len(text.translate(_NO_HOLES).split())
        return text

    def _template_text(self, name: str, rest: Iterator) -> str:
        t, ends = self._t, self._parameter_ends
        own = self._templates.get(name, self._templates.get(name.lower()))
        if self._end is t.TemplateClose and own is None:
            sign = self._sign(name)
            return _unread(name) if sign is None else sign.replace("'", _APOSTROPHE)
        reader = inline_templates.of_pattern(own) if own else self._reader(name)
        if reader is None or own == "":
            if self._end is not t.TemplateClose:
                _skip(rest, t.TemplateOpen, (t.TemplateClose,))
            return "" if own == "" else _unread(name)
        unnamed: dict[str, str] = {}  # by place, which may be named: {{frac|1|2=3}}
        named: dict[str, str] = {}
        count = 0
        while self._end is t.TemplateParamSeparator:
            value = self._read(rest, (*ends, t.TemplateParamEquals)).strip()
            if self._end is t.TemplateParamEquals:
                of = unnamed if value.isdecimal() else named
                named_value = self._read(rest, ends).replace(NOTE, "")
                of[value.lower()] = named_value.strip(" \n\t")  # a written &nbsp; stays
            else:
                count += 1
                unnamed[str(count)] = value.replace(NOTE, "")
        places = itertools.takewhile(unnamed.__contains__, map(str, itertools.count(1)))
        text = reader([unnamed[place] for place in places], named)
        return text or _unread(name).replace(MAYBE_HOLE, HOLE)

    def _heading(self, token, rest: Iterator) -> str:
        return _skip(rest, self._t.HeadingStart, (self._t.HeadingEnd,)) + "\n\n"

    def _link(self, token, rest: Iterator) -> str:
        t = self._t
        title = self._read(rest, (t.WikilinkSeparator, t.WikilinkClose)).strip()
        labelled = self._end is t.WikilinkSeparator
        if _is_dropped(title, self._dropped):
            return _skip(rest, t.WikilinkOpen, (t.WikilinkClose,)) if labelled else ""
        return self._read(rest, (t.WikilinkClose,)) if labelled else title.removeprefix(":")

    def _url(self, token, rest: Iterator) -> str:
        t = self._t
        self._read(rest, (t.ExternalLinkSeparator, t.ExternalLinkClose))
        if self._end is t.ExternalLinkSeparator:
            label = self._read(rest, (t.ExternalLinkClose,))
            if not _ADDRESS.search(label):
                return label
            return HOLE if " " in label.strip() else NOTE
        return NOTE if token.brackets else HOLE  # "[1]", as of a reference, or the address

    def _argument(self, token, rest: Iterator) -> str:
        t = self._t
        self._read(rest, (t.ArgumentSeparator, t.ArgumentClose))
        has_default = self._end is t.ArgumentSeparator
        return self._read(rest, (t.ArgumentClose,)) if has_default else HOLE

    def _entity(self, token, rest: Iterator) -> str:
        name = ""
        for token in rest:
            if type(token) is self._t.HTMLEntityEnd:
                break
            numeric = {self._t.HTMLEntityNumeric: "#", self._t.HTMLEntityHex: token.get("char")}
            name += numeric.get(type(token)) or token.get("text") or ""
        # An escaped "<" is text: it must not be taken for a tag by `_without_tags`.
        return html.unescape(f"&{name};").replace("<", _LESS).replace("'", _APOSTROPHE)

    def _tag(self, token, rest: Iterator) -> str:
        t = self._t
        ends = (t.TagCloseOpen, t.TagCloseSelfclose)
        name = self._read(rest, (*ends, t.TagAttrStart)).strip().lower()
        attributes = ""
        while self._end is t.TagAttrStart:
            attributes += self._read(rest, (*ends, t.TagAttrStart))
        closed, dropped = self._end is t.TagCloseSelfclose, name in _DROPPED_TAGS
        if not closed and _HIDDEN.search(attributes):
            return _skip(rest, t.TagOpenOpen, (t.TagCloseClose, t.TagCloseSelfclose))
        if closed and (token.get("wiki_markup") or "")[:1] in _LIST_MARKUP:
            return _LIST
        text = ""
        if not closed and dropped:
            _skip(rest, t.TagOpenOpen, (t.TagCloseClose, t.TagCloseSelfclose))
            text = HOLE if name in _WORD_TAGS else ""
        elif not closed:
            text = self._read(rest, (t.TagOpenClose,))
            self._read(rest, (t.TagCloseClose,))
        if name == "code" and not any(map(str.isalnum, text)):
            return HOLE  # signs of code would be taken for punctuation
        if name == "nowiki":
            # What is in <nowiki> is shown as it stands.
            text = text.replace("<", _LESS).replace("'", _APOSTROPHE)
        if text and name in _SCRIPTS:
            return f"{_SCRIPTS[name]}{text}{AFTER}"
        return f"\n\n{text}\n\n" if name in _BLOCK_TAGS else text


def _unread(name: str) -> str:
    if inline_templates.is_sound(name):
        return SOUND
    return NOTE if inline_templates.is_silent(name) else MAYBE_HOLE


def _skip(rest: Iterator, opening: type, closings: tuple[type, ...]) -> str:
    """Moves past the end of a construct, including nested ones of its type."""
    depth = 1
    for token in rest:
        kind = type(token)
        if kind is opening:
            depth += 1
        elif kind in closings:
            depth -= 1
            if not depth:
                break
    return ""


def _is_dropped(title: str, dropped: frozenset[str]) -> bool:
    """Whether a link is to a file, a category or another language's page."""
    prefix, colon, name = title.partition(":")
    prefix = prefix.strip().replace("_", " ").lower()
    if not (prefix and colon):
        return False
    # A wiki's older names of files ("Bild:", "Imagen:") stand in no dump.
    is_file = name.rpartition(".")[2].strip().lower() in _MEDIA
    return (
        (is_file and prefix not in _LINKED_MEDIA)
        or prefix in dropped
        or prefix in inline_templates.WIKI_LANGUAGES
    )


def sections(wikitext: str) -> Iterator[str]:
    """Cuts a page before its second-level headings, wherever no template, table, comment or
    reference is open; the parts joined are the page."""
    start = last = 0
    left_open = (0, 0, 0, 0)
    for heading in _HEADING.finditer(wikitext):
        # A heading inside of an open template is not a border.
        more = _left_open(wikitext[last : heading.start(1)])
        left_open = tuple(map(sum, zip(left_open, more, strict=True)))
        last = heading.start(1)
        if last > start and not any(left_open):
            yield wikitext[start:last]
            start = last
    if start < len(wikitext):
        yield wikitext[start:]


def _defused(text: str) -> str:
    """The same without what the tokenizer takes quadratic time for: constructs that are opened by
    the hundred and never closed, which only vandals write."""
    for opening, closing in (("{{", "}}"), ("[", "]"), ("{|", "|}")):
        if text.count(opening) > text.count(closing) + _UNCLOSED:
            text = text.replace(opening, " ")
    if text.count("<") > _UNCLOSED:
        closed = text.count("</") + text.count("/>")
        if len(_PAIRED_TAG.findall(text)) > closed + _UNCLOSED:
            text = _without_tags(text).replace("<", " ")
    return text


def _without_tables(text: str) -> str:
    if "{|" not in text:
        return text
    kept, last, begins = [], 0, []
    for border in _TABLE.finditer(text):
        if border[0].endswith("{|"):
            begins.append(border.start())
        elif begins:
            begin = begins.pop()
            if not begins:  # of the outer table
                kept.append(text[last:begin])
                last = border.end()
    return "".join(kept) + text[last:]


def _without_tags(text: str) -> str:
    """Removes unpaired tags; unpaired block tags end a paragraph."""
    if "<" not in text:
        return text
    return _LEFT_TAG.sub(lambda tag: "\n\n" * (tag[1].lower() in _BLOCK_TAGS), text)


def _one_variant(match: re.Match) -> str:
    """What is shown of a text in several variants: the first, or nothing of a rule or a title."""
    flags = match[1] or ""
    return "" if {*flags} & {*"TH"} else _VARIANT.sub("", match[2].split(";")[0], count=1).rstrip()


def _without_comments(text: str) -> str:
    """Removes comments as MediaWiki does: an unclosed one hides the rest."""
    kept, start = [], 0
    while (begin := text.find("<!--", start)) >= 0:
        kept.append(text[start:begin])
        end = text.find("-->", begin + 4)
        start = len(text) if end < 0 else end + 3
    return "".join(kept) + text[start:] if kept else text


def _left_open(text: str) -> tuple[int, ...]:
    """Number of templates, comments, references and tables that begin, less those that end."""
    closed = _SELF_CLOSED_REF.sub("", text) if "<ref" in text else text
    pairs = (closed.count(a) - closed.count(b) for a, b in _PAIRS)
    begun = len(_TABLE_START.findall(text)) if "{|" in text else 0
    return *pairs, begun - (len(_TABLE_END.findall(text)) if "|}" in text else 0)


def _clean(text: str, holes: HoleFiller) -> Iterator[str]:
    """Paragraphs as MediaWiki sees them: lines until a blank one, without those of lists."""
    lines: list[str] = []
    for line in [*_SWITCHES.sub("", text).split("\n"), ""]:
        shown = (_unquoted(line) if "''" in line else line).replace(_APOSTROPHE, "'")
        if NOTE in shown:
            shown = _GLUED.sub(" ", _LED_TO.sub(HOLE, shown)).replace(NOTE, "")
        words = [] if _LIST in line or _is_cell(line) else shown.split()
        # A line of templates alone ends a paragraph.
        if words and line.strip(f" {HOLE}{MAYBE_HOLE}{SOUND}"):
            lines += words
        elif lines:
            paragraph = _tidy(holes.fill(" ".join(lines)))
            if not paragraph.isascii():
                paragraph = _INVISIBLE.sub("", paragraph)
            lines = []
            # A paragraph of punctuation only is what a dropped template left.
            if any(map(str.isalnum, paragraph)):
                yield paragraph


def _is_cell(line: str) -> bool:
    """Whether a line is of a table that a template begins or ends, or that nothing ends."""
    line = line.lstrip()
    return line.startswith(("|", "{|")) or (line[:1] == "!" and bool(_HEADER.match(line)))


def _unquoted(line: str) -> str:
    """Removes bold and italic marks, which end with the line."""
    runs = collections.Counter(_marks(len(run)) for run in _QUOTES.findall(line))
    both = runs[5]  # bold and italic
    if (runs[3] + both) % 2 and (runs[2] + both) % 2:  # italics, then an apostrophe
        line = _POSSESSIVE.sub("'", line, count=1)
    return _QUOTES.sub(lambda run: "'" * (len(run[0]) - _marks(len(run[0]))), line)


def _marks(apostrophes: int) -> int:
    """How many of a run of apostrophes are markup; those before them are text."""
    return 3 if apostrophes == 4 else min(apostrophes, 5)


def _tidy(paragraph: str) -> str:
    """Removes remains of dropped templates: empty brackets, blanks before a full stop."""
    if AFTER in paragraph:
        paragraph = _SCRIPT_FRACTION.sub(rf"{PLUS}\1/\2", _NOTE_NUMBER.sub("", paragraph))
        paragraph = _NEXT.sub(" ", _BASE.sub("_", _POWER.sub("^", paragraph)))
        paragraph = paragraph.translate(NO_SCRIPTS)
    if "\uff08" in paragraph:
        paragraph = _WIDE_BRACKETS.sub(r"\1\2", paragraph).replace("\uff08\uff09", "")
    if "(" in paragraph or "[" in paragraph:
        if _EMPTY.search(paragraph):
            paragraph = _EMPTY_BRACKETS.sub("", paragraph)
        paragraph = _OPENING_REST.sub(r"\1", paragraph)
        if _CLOSING.search(paragraph):
            paragraph = _CLOSING_REST.sub("", paragraph)
    if PLUS in paragraph:
        paragraph = _WHOLE.sub(" ", paragraph).replace(PLUS, "")
    if _STOP_BEHIND_BLANK.search(paragraph):
        paragraph = _BEFORE_STOP.sub(r"\1", paragraph)
    return _COMMAS.sub(",", paragraph) if ",," in paragraph else paragraph
