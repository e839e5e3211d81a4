"""Finds the whole names in sentences, and the dates that say when."""

import re
from collections.abc import Sequence

from ckl_jax.data.text.spans import CAPITALS
from ckl_jax.data.text.taggers import HeuristicFinder

# What comes before a date that says when; in brackets it often says of when a number is.
_WHEN = re.compile(r"\b(?:in|on|since|until|from|by|of|before|after|during)\s+$", re.IGNORECASE)
# Beside a name these are no part of it, as other capitalised words are.
_TITLES = frozenset(
    "president premier prime minister chancellor governor secretary ambassador king queen emperor "
    "prince princess pope general captain colonel major admiral lieutenant sergeant judge mayor "
    "senator bishop archbishop cardinal mr mrs ms dr sir lord lady professor".split()
)
# Between the words of a name: "Ursula von der Leyen", "C\u00f4te d'Ivoire", "Bashar al-Assad".
_PARTICLES = (
    r"(?:(?:af|al|bin|bint|da|das|de|del|della|den|der|di|dos|du|el|het|ibn|la|las|le|los|ter|van|"
    r"von|zu|zum|zur) |d['\u2019]|[ae]l-)*"
)
_LAST_WORD = re.compile(rf"(\S+) {_PARTICLES}$")
# What follows a name and belongs to it: capitalised words, and a number that is no amount.
_NEXT_WORDS = re.compile(
    rf"(?: (?:[{CAPITALS}]\. )?{_PARTICLES}[{CAPITALS}]\w*(?:-\w+)*"
    r"| \d+(?:\.\d+)*(?![\w%]|[.,]\d))*"
)
_ADDRESS_BEFORE, _NO_END = re.compile(r"[\w/#=]"), re.compile(rf"[\w/]|\.\w| [{CAPITALS}0-9]")
_INITIAL = re.compile(rf"[{CAPITALS}]\.")
_INSIDE = re.compile(rf"(?:[^\W\d_{CAPITALS}]|[,;]) ([{CAPITALS}][\w-]* [{CAPITALS}][\w-]*)")


class NameFinder:
    """Finds names and dates in the sentences of texts, and names as far as they go.

    Args:
      texts: say which words are names, and how names inside sentences begin.
    """

    def __init__(self, texts: Sequence[str]):
        self._finder = HeuristicFinder.fit(texts)
        self._inside = {words.lower() for text in texts for words in _INSIDE.findall(text)}

    def find(self, text: str) -> list[tuple[int, int, bool]]:
        """Where names and dates stand in a sentence, in order, and whether each is a date."""
        spans = self._finder.find(text)
        dates = {(start, end) for start, end, label in spans if label == "DATE"}
        found = [(start, end) for start, end, label in spans if label != "DATE"]
        wholes = {self._whole(text, *place, is_first=found[0][0] == 0) for place in found}
        names = {w for w in wholes if w and all(w[1] <= a or b <= w[0] for a, b in dates)}
        # A name within a longer one is a title's: "Holt" of "Amazon President Holt".
        names = {w for w in names if not any(w[0] <= a and b <= w[1] for a, b in names - {w})}
        when = {date for date in dates if _WHEN.search(text[: date[0]])}
        return sorted((*place, place in when) for place in names | when)

    def _whole(
        self, text: str, start: int, end: int, *, is_first: bool = False
    ) -> tuple[int, int] | None:
        """The name that a found one is part of: "Amazon EC2" for Amazon, "Orion 4" for Orion.

        Args:
          is_first: whether the first word of the sentence is one that was found.

        Returns:
          Its place, or None if it cannot be told, as after a possessive and in an address.
        """
        end += len(_NEXT_WORDS.match(text[end:])[0])
        while (before := _LAST_WORD.search(text[:start])) is not None:
            word = before[1].lstrip("\"'([\u201c")
            is_whole = word[-1:].isalnum() or _INITIAL.fullmatch(word)
            if not word[:1].isupper() or not is_whole or word.lower() in _TITLES:
                break
            # The first word of a sentence is capitalised anyway.
            first = f"{word} {text[start:end].split()[0]}".lower()
            is_inside = first in self._inside or (is_first and before.end(1) + 1 < start)
            if before.start() == 0 and not is_inside:
                break
            if word.endswith(("'s", "\u2019s")):
                return None
            start = before.end(1) - len(word)
            if word != before[1]:  # a bracket or a quotation mark comes before it
                break
        if _ADDRESS_BEFORE.match(text[start - 1 : start]) or _NO_END.match(text[end:]):
            return None
        return start, end
