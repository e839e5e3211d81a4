"""Invented names: every country has its own sounds, so that its names resemble one another."""

import random
from collections.abc import Sequence

_ONSETS = "b d f g h j k l m n p r s t v z br dr gr kr pr tr st sk sl th sh kl fl gl".split()
_VOWELS = "a e i o u a e i o ai ou ei ia".split()
_CODAS = ["", "", "n", "r", "l", "s", "m", "k", "t", "nd", "rn", "lt", "sk", "v"]
_SURNAME_ENDS = ("sen", "ov", "ez", "ard", "ini", "ski", "aldi", "wen", "oja", "ukh", "eau", "")
_CITY_ENDS = ("ton", "burg", "grad", "mouth", "stad", "haven", "pol", "a", "o", "is", "")
_COUNTRY_ENDS = ("ia", "land", "ora", "ania", "estan", "una", "ovia")
_LANGUAGE_ENDS = ("ish", "ese", "ic", "ari", "ien")
SECOND_WORDS = {  # of names of two words, by kind
    "company": ("Group", "Systems", "Motors", "Foods", "Energy", "Airlines", "Bank", "Media"),
    "club": ("United", "Rovers", "City", "Athletic", "Wanderers", "Eagles", "Lions"),
    "university": ("University", "College", "Institute"),
    "award": ("Prize", "Award", "Medal"),
    "event": ("Festival", "Games", "Marathon", "Summit", "Fair"),
    "league": ("League", "Conference"),
}
# Words that English or the entity finder would read as something else.
_RESERVED = frozenset(
    "the and may march mar jan sun sat mon dec sep prof gen rep sen her his him man men star "
    "than that this then them there their these those through thing think stand still stop "
    "slum raise kill pain raid maid said rain ruin sure more mire rise rose".split()
)


class NameMaker:
    """Makes names that are all different, from one generator of random numbers."""

    def __init__(self, rng: random.Random, regions: int):
        self._rng = rng
        self._used: set[str] = set()
        # A region's onsets, vowels, codas and its ends of surnames and cities.
        kinds = ((_ONSETS, 9), (_VOWELS, 4), (_CODAS, 4), (_SURNAME_ENDS, 3), (_CITY_ENDS, 3))
        self._sounds = [[rng.sample(*kind) for kind in kinds] for _ in range(regions)]

    def _root(self, region: int, syllables: int) -> str:
        onsets, vowels, codas, _, _ = self._sounds[region % len(self._sounds)]
        choice = self._rng.choice
        middle = [choice(onsets) + choice(vowels) for _ in range(syllables - 1)]
        return "".join([*middle, choice(onsets), choice(vowels), choice(codas)])

    def word(
        self,
        region: int,
        ends: Sequence[str] = ("",),
        syllables: Sequence[int] = (2,),
        longest: int = 9,
    ) -> str:
        """Returns a new capitalised word of 4 to `longest` letters, longer ones if need be."""
        for attempt in range(10_000):
            root = self._root(region, self._rng.choice(syllables) + attempt // 2_000)
            end = self._rng.choice(ends)
            if end and root[-1] in "aeiou" and end[0] in "aeiou":
                root = root.rstrip("aeiou")
            name = root + end
            fits = 4 <= len(name) <= longest + attempt // 2_000
            if fits and name not in self._used and name not in _RESERVED:
                self._used.add(name)
                return name.capitalize()
        raise RuntimeError("the sounds of this region are used up")

    def first_name(self, region: int) -> str:
        return self.word(region, ("a", "o", "en", "is", "", "ne"), (1, 2), 6)

    def surname(self, region: int) -> str:
        return self.word(region, self._sounds[region % len(self._sounds)][3], (1, 2))

    def city(self, region: int) -> str:
        return self.word(region, self._sounds[region % len(self._sounds)][4], (1, 2))

    def country(self, region: int) -> str:
        return self.word(region, _COUNTRY_ENDS, (1, 2))

    def language(self, region: int) -> str:
        return self.word(region, _LANGUAGE_ENDS, (1, 2))

    def river(self, region: int) -> str:
        return self.word(region)

    def two_words(self, region: int, kind: str) -> str:
        """Returns a new name such as "Kelora Group" for the kinds of `SECOND_WORDS`."""
        return f"{self.word(region, syllables=(1, 2))} {self._rng.choice(SECOND_WORDS[kind])}"
