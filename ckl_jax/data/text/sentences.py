"""Sentences of a paragraph, by Wikimedia's sentencex, and the form in which texts are compared."""

import functools
import html
import re
import unicodedata
from collections.abc import Callable

from ckl_jax.errors import if_missing

Split = Callable[[str], list[str]]
_WORD = re.compile(r"\w")
# Of Markdown; `_` is within words, and `*` between numbers, too.
_EMPHASIS = re.compile(r"(?<![^\W_])_+|_+(?![^\W_])")
_STARS = re.compile(r"(?<![\w*])\*{1,3}(?=[^\s*])|(?<=[^\s*])\*{1,3}(?![\w*])")
_TAG = re.compile(
    r"</?(?:p|br|b|i|em|strong|u|s|a|span|div|sub|sup|small|mark|del|ins|font|center|q|cite|abbr"
    r"|h[1-6]|li|ul|ol|td|th|tr|blockquote)(?:\s[^<>]*)?/?>",
    re.IGNORECASE,
)
# Behind a stop alone a number in brackets is no index of a list.
_FOOTNOTE = re.compile(r"\[\^\w{1,20}\]|(?<=[.!?,;\"')])\[\d{1,3}\]")
_LINK = re.compile(r"\[([^\[\]]*)\]\([^()\s]*\)")
_LEADING_MARKS = re.compile(
    r"^\s*(?:(?:[-*+•‣]|#{1,6}|\[[ xX]\]|\d+(?:\.\d+)+\.?(?=\s+[A-Z][a-z]))\s+|>\s*)+"
)
# Combining marks, such as the vowels of Hindi, tones of Thai and points of Hebrew, as a class of a
# regular expression has them: `\w` lacks them. Those that choose how a symbol looks are none.
MARKS = "".join(c for c in map(chr, range(0xFE00)) if unicodedata.category(c)[0] == "M")
_MARK = re.compile(f"[{MARKS}]")
NUMBER_WORDS = tuple(
    "one two three four five six seven eight nine ten eleven twelve hundred thousand million "
    "billion".split()
)
_DASHES = "-\u2010\u2011\u2012\u2013\u2014\u2015"
_MINUS, _POINT = "\u2212", "\u2219"
CURRENCIES = "$€£¥₹₩₽₱₺₪₴₦฿"
_DASH = re.compile(f"[{_DASHES}]")
# Before a number or a sum of money, or behind a single letter, as grades and blood types have it.
_SIGN = re.compile(
    rf"(?<![\w)\]])[{_DASHES}](?=(?:[A-Z]{{0,3}}[{CURRENCIES}] ?)?{_POINT}?\d)"
    rf"|(?<=\b[A-Z])[{_DASHES}](?![{_DASHES}\w])"
)
_LEADING_POINT = re.compile(r"\.(?=\d)(?<![\w.]\.)")  # of .5
# Up to three words, of which the first alone may be a name: "Update:", "As before,".
_LEAD_IN = re.compile(
    r"[\"\u201c(]?[^\W\d_]+(?:['\u2019 -][^\W\d_A-Z]+){0,2} ?"
    r"(?:[:,;]|[-\u2013\u2014]+(?= ))\s+(?=\S)"
)
# Ends of what the library takes for sentences in other languages than English: initials and titles.
_ABBREVIATED = re.compile(
    r"(?:^|[\s(])(?:[A-Z]|MM|Mmes?|Mlles?|Mgr|Ste?|Dr|Pr|Prof|hl|Hr|Fr|Nr|Dhr|Mevr|Sig|Sra?)\.\s*$"
)
_NOT_ALPHANUMERIC = bytes(c for c in range(128) if not chr(c).isalnum())


def sentence_splitter(language: str = "en") -> Split:
    """Returns the splitter of a language; unknown languages use a related one.

    Raises:
      UserError: the library is not installed.
    """
    with if_missing(
        "Splitting sentences needs the package sentencex; pip install 'ckl-jax[data]'."
    ):
        import sentencex

    def split(paragraph: str) -> list[str]:
        pieces = []
        for piece in sentencex.segment(language, paragraph):
            if pieces and language != "en" and _ABBREVIATED.search(pieces[-1]):
                piece = pieces.pop() + piece
            pieces.append(piece)
        return [s for piece in pieces if (s := piece.strip())]

    return split


def normalise(text: str) -> str:
    """Lower-case words separated by single blanks, without punctuation; may be ""."""
    text = _comparable(text)
    every, between_digits, others = _punctuation(marks_of(text))
    unwanted = others if between_digits.search(text) else every
    return " ".join(unwanted.sub("", text).lower().split())


def marks_of(text: str) -> str:
    """`MARKS` for a text that has some, else ""."""
    return "" if text.isascii() or not _MARK.search(text) else MARKS


def composed(text: str) -> str:
    """The same text with accents within their letters, where Unicode has such a letter."""
    return unicodedata.normalize("NFC", text) if marks_of(text) else text


def _comparable(text: str) -> str:
    """The same text composed, without emphasis by `_`, which is no punctuation to `re`."""
    text = composed(text)
    return _EMPHASIS.sub("", text) if "_" in text else text


@functools.cache
def _punctuation(kept: str) -> tuple[re.Pattern, re.Pattern, re.Pattern]:
    """Patterns of punctuation but what is kept: all, that between digits, and all other.

    3.5 and 35, 9:30 and 930 are different.
    """
    other = rf"[^\w\s{kept}]+"
    patterns = other, rf"\d{other}\d", rf"{other}(?!\d)|(?<!\d){other}"  # the last is slower
    every, between_digits, others = map(re.compile, patterns)
    return every, between_digits, others


@functools.cache
def _symbols() -> tuple[str, re.Pattern, re.Pattern]:
    """Symbols, and patterns of dashes and symbols, and of symbols."""
    characters = map(chr, range(0x10000))
    chosen = [c for c in characters if unicodedata.category(c) in ("Sm", "Sc") or c in "#%°‰′″"]
    kept = "".join(map(re.escape, chosen))
    return kept, re.compile(rf"[{_DASHES}{kept}]"), re.compile(f"([{kept}])")


def comparison_key(text: str) -> str:
    """Like `normalise`, but symbols are words: equal only for texts with the same signs.

    Mathematical and currency signs, #, %, degrees, primes and decimal points are kept ($5 and
    EUR 5, -5 and 5, .5 and 5, C++ and C, < and > differ); hyphens and dashes that are no sign of a
    number are blanks. "" for a text without letters and digits.
    """
    kept, special, symbols = _symbols()
    text = _LEADING_POINT.sub(_POINT, text)
    if not special.search(text):
        return normalise(text)
    if not _WORD.search(text):
        return ""
    text = _DASH.sub(" ", _SIGN.sub(_MINUS, text))
    if not symbols.search(text):
        return normalise(text)
    text = _comparable(text)
    *_, others = _punctuation(kept + marks_of(text))
    return " ".join(symbols.sub(r" \1 ", others.sub("", text)).lower().split())


def without_markup(text: str) -> str:
    """A text without HTML's tags of text and entities, Markdown's links and marks of footnotes."""
    if "<" in text:
        text = _TAG.sub("", text)
    if "[" in text:
        text = _FOOTNOTE.sub("", _LINK.sub(r"\1", text))
    return html.unescape(text) if "&" in text else text


def without_markdown(text: str) -> str:
    """A sentence without markup, the marks of a list, a quotation or a heading, and emphasis."""
    return _EMPHASIS.sub("", _STARS.sub("", _LEADING_MARKS.sub("", without_markup(text))))


def without_lead_in(sentence: str) -> str:
    """A sentence without up to three words that lead to it: "FYI, the shop is open."."""
    match = _LEAD_IN.match(sentence)
    return sentence[match.end() :] if match else sentence


def letters(text: str) -> bytes:
    """Lower-case ASCII letters and digits only: equal for texts that `normalise` makes equal.

    It is some twenty times as fast, and so finds out quickly what is certainly not in a text.
    """
    return composed(text).lower().encode("ascii", "ignore").translate(None, _NOT_ALPHANUMERIC)
