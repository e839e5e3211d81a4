"""How long the inputs and the answers of probes are: their format's lengths, or a run's own."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ckl_jax import checks


class ProbeLengths:
    """What records of probes to put share.

    Attributes:
      formats: {probe: its format, with `input_length` and `target_length`}.
      probes: names in `formats`.
      input_lengths, target_lengths: {probe: tokens} that replace the formats'; the key "*" replaces
        all. A target length counts the start token, as Hugging Face's does.
    """

    formats: ClassVar[Mapping[str, Any]]
    probes: tuple[str, ...]
    input_lengths: Mapping[str, int]
    target_lengths: Mapping[str, int]

    def check_lengths(self) -> None:
        """Raises `UserError` for a length that is none, or of no probe."""
        # A target has the start token and one to decode.
        for field, least in (("input_lengths", 1), ("target_lengths", 2)):
            name = f"{type(self).__name__}.{field}"
            checks.require_lengths_of(self.formats, least, **{name: getattr(self, field)})

    def lengths(self, probe: str) -> tuple[int, int]:
        """Input and target length of a probe."""
        form = self.formats[probe]
        pairs = ((self.input_lengths, form.input_length), (self.target_lengths, form.target_length))
        return tuple(given.get(probe, given.get("*", default)) for given, default in pairs)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the probes; () is none."""
        return tuple(self.probes)
