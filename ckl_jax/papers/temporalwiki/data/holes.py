"""Removes what a template that is not read leaves of its sentence: its bracket, or the sentence.

A sentence with a hole ("average high temperatures of - and lows of") must not be trained on.
"""

import collections
import re

from ckl_jax.data.text.sentences import Split, sentence_splitter
from ckl_jax.data.text.spans import CAPITALS

# Characters that are in no XML. A word is missing at `HOLE`; at `MAYBE_HOLE` there was a template
# that is not known, which may have shown nothing; at `SOUND` one that says how to pronounce a word.
# `NOTE` is where something was that shows no word.
HOLE, MAYBE_HOLE, SOUND, NOTE = "\2", "\3", "\4", "\6"
_ANY = f"[{HOLE}{MAYBE_HOLE}]"
_HAS = re.compile(_ANY)
# No word that a number or a name follows.
_NO_LEAD = "".join(
    rf"(?<!\b{word})"
    for word in "about above and approximately around below between born died for from into nearly "
    "over since than the under until with AUD CAD CHF CNY EUR GBP INR JPY NZD USD".split()
)
# A letter or number that no sentence begins with, or of a script without capitals.
_GOES_ON = rf"[^\W_{CAPITALS}]"
_SHOWN_NOTHING = re.compile(
    # Attached to a word or its punctuation, as notes are, but not to a number, a symbol, a word
    # that needs one or what follows; between sentences; at either end.
    rf"(?:(?<=[^\s(\[][;!?)\]\"”’'%])|(?<=[^\s\d(\[],)|(?<=[^\W\d_]{{3}}){_NO_LEAD}){MAYBE_HOLE}+"
    rf"(?!\w)|(?<=[^\s\d(\[]\.){MAYBE_HOLE}+(?! ?{_GOES_ON})"
    rf"|(?<=\d[.,]){MAYBE_HOLE}+(?! ?{_GOES_ON})"
    rf"|(?:^|(?<=[^\W_]{{3}}[.!?] )(?<!approx\. )|(?<=[)\]\"”’'][.!?] ))"
    rf"{MAYBE_HOLE}[{MAYBE_HOLE} ]*(?=[\"“‘«„]*[{CAPITALS}]|$)"
    rf"|(?<=[.!?:\"”)] ){MAYBE_HOLE}[{MAYBE_HOLE} ]*$"
)
# A stop that ends no sentence.
_STOP = re.compile(rf"(?<=\d)\.(?={_ANY})|(?<=approx)\.(?= {_ANY})")
# A stop of an abbreviation that the splitter takes for an end, before what it stands for: a number,
# a name in quotation marks, a hole. `_NO_END` takes its place until the sentences are split.
_NO_END = "\7"
_BEFORE_HOLE = (  # abbreviations that may end a sentence too
    "abbr|alt|arr|art|avg|ca|cf|col|comp|dept|diam|dir|dist|elev|esp|fam|feat|fl|ft|gen|illus|incl|"
    "lat|min|nos?|opp|ord|orig|para?|pop|prod|pron|ref|repr|rev|sec|spp?|ssp|st|subsp|suppl|syn|"
    "temp|trans|usu|var|viz|vs|wt"
)
_ABBREVIATION = re.compile(
    r"\b(lit|(?i:vols?|chs?|chap|figs|bk|pt|eds?|ser|iss|est|max|approx))\."
    rf"(?= ['\"‘“(\dIVXLC{HOLE}{MAYBE_HOLE}])|\b({_BEFORE_HOLE})\.(?= {_ANY})"
)
_BRACKETS = re.compile(rf" ?(?:\(([^()]*{_ANY}[^()]*)\)|\[([^\[\]]*{_ANY}[^\[\]]*)\])")
_BEFORE_SOUND = (
    "pronounced|pronunciation|is|are|was|as|for|with|like|of|to|or|and|in|by|from|vowel|sound"
)
_SPOKEN = re.compile(rf"\b({_BEFORE_SOUND}) {SOUND}+")
_SOUNDS = re.compile(rf" ?{SOUND}+(?= )|{SOUND}+")
_LEADS_TO_SOUND = re.compile(rf"(?::|\b(?:{_BEFORE_SOUND}|also|named|called|locally|the|an?))\s*$")
_SOUND_BRACKETS = re.compile(rf" ?\(([^()]*{SOUND}[^()]*)\)")
_ASIDE = re.compile(rf", pronounced(?: as| like)? {HOLE},")


class HoleFiller:
    """Removes holes from paragraphs; adds what it does to `counts`."""

    def __init__(self, language: str, counts: collections.Counter[str]):
        self._language, self._counts = language, counts
        self._split: Split | None = None

    def fill(self, paragraph: str) -> str:
        """The paragraph without holes, perhaps ""."""
        if SOUND in paragraph:
            paragraph = _SOUND_BRACKETS.sub(_without_sounds, paragraph)
            paragraph = _ASIDE.sub("", _SPOKEN.sub(rf"\1 {HOLE}", paragraph))
            paragraph = _SOUNDS.sub("", paragraph)
        if HOLE not in paragraph and MAYBE_HOLE not in paragraph:
            return paragraph
        paragraph = _STOP.sub("", _SHOWN_NOTHING.sub("", paragraph).strip())
        paragraph, phrases = _BRACKETS.subn(_rest_of_brackets, paragraph)
        self._counts["phrases dropped"] += phrases
        if not _HAS.search(paragraph):
            return paragraph
        # The splitter is loaded where it is needed.
        self._split = self._split or sentence_splitter(self._language)
        sentences: list[str] = []
        for sentence in self._split(_ABBREVIATION.sub(rf"\1\2{_NO_END}", paragraph)):
            if sentences and sentence[0].islower():  # it goes on behind "1!"
                sentences[-1] += f" {sentence}"
            else:
                sentences.append(sentence)
        kept = [sentence for sentence in sentences if not _HAS.search(sentence)]
        self._counts["sentences dropped"] += len(sentences) - len(kept)
        return " ".join(kept).replace(_NO_END, ".")


def _without_sounds(phrase: re.Match) -> str:
    """A bracket without sounds, and without what only leads to one: "French:", "also"."""
    parts = [
        ",".join(piece for piece in map(_without_sound, part.split(",")) if piece)
        for part in phrase[1].split(";")
    ]
    kept = ";".join(part for part in parts if part.strip()).strip()
    return f" ({kept})" if kept else ""


def _without_sound(piece: str) -> str:
    """The part of a bracket before a sound at its end; all of one without a sound."""
    if SOUND not in piece:
        return piece
    before, _, after = piece.partition(SOUND)
    is_word = before.strip() and not _LEADS_TO_SOUND.search(before)
    return before.rstrip() if is_word and not after.strip(f"{SOUND} ") else ""


def _rest_of_brackets(phrase: re.Match) -> str:
    """The parts of a bracket without a hole."""
    opening, closing = "()" if phrase[2] is None else "[]"
    parts = (phrase[1] or phrase[2]).split(";")
    kept = [part for part in parts if part.strip() and not _HAS.search(part)]
    return f" {opening}{';'.join(kept).strip()}{closing}" if kept else ""
