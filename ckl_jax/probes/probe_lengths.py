"""The probes of a run as records, with the lengths of their inputs and answers."""

import functools
from collections.abc import Mapping, Sequence
from typing import ClassVar

from ckl_jax import checks
from ckl_jax.data.facts.probe import Probe
from ckl_jax.errors import UserError


class ProbeLengths:
    """What `ClosedBook` and its like have in common.

    Attributes:
      has_rows: an evaluation that yields rows of items, from which scores are made.
      published: {name: probe} of those that have names.
      may_be_empty: whether there may be no probes.
      probes: records, or names in `published`.
      input_lengths, target_lengths: {probe: tokens} that replace the records'; the key "*" replaces
        all. A target length counts the start token, as Hugging Face's does.
    """

    has_rows: ClassVar[bool] = True
    published: ClassVar[Mapping[str, Probe]]
    may_be_empty: ClassVar[bool] = False
    probes: Sequence[str | Probe]
    input_lengths: Mapping[str, int]
    target_lengths: Mapping[str, int]

    @functools.cached_property
    def records(self) -> dict[str, Probe]:
        """{name: probe}, in the order in which they are put.

        Raises:
          UserError: `probes` is not a list of probes, or has two of one name.
        """
        setting, names = f"{type(self).__name__}.probes", self.probes
        # A user's own records are allowed beside published names; anything else is refused by name.
        own: dict[str, Probe] = {}
        if isinstance(self.probes, Sequence) and not isinstance(self.probes, str):
            own = {p.name: p for p in self.probes if isinstance(p, Probe)}
            names = [p.name if isinstance(p, Probe) else p for p in self.probes]
        known = (*self.published, *own)
        checks.require_names(known, empty=self.may_be_empty, **{setting: names})
        if twice := [name for name in names if names.count(name) > 1]:
            raise UserError(f"{setting} has two probes {twice[0]!r}; give each a name of its own.")
        return {name: own.get(name) or self.published[name] for name in names}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the probes; () is none."""
        return tuple(self.records)

    def check_lengths(self) -> None:
        """Raises `UserError` for a length that is not a positive integer or belongs to no probe."""
        known = (*self.published, *self.records)
        # A target has the start token and one to decode.
        for field, minimum in (("input_lengths", 1), ("target_lengths", 2)):
            name = f"{type(self).__name__}.{field}"
            checks.require_lengths_of(known, minimum, **{name: getattr(self, field)})

    def lengths(self, probe: str) -> tuple[int, int]:
        """Input and target length of a probe."""
        record = self.records[probe]
        pairs = (
            (self.input_lengths, record.input_length),
            (self.target_lengths, record.target_length),
        )
        # A probe's own entry wins over "*", and that over the record.
        return tuple(given.get(probe, given.get("*", default)) for given, default in pairs)
