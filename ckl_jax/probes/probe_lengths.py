"""How long the inputs and the answers of probes are: their records' lengths, or a run's own."""

from collections.abc import Iterable, Mapping, Sequence

from ckl_jax import checks
from ckl_jax.data.probe import Probe
from ckl_jax.errors import UserError


class ProbeLengths:
    """The probes of `ClosedBook` and its like, and how long their inputs and answers are.

    Attributes:
      records: {name: probe}, in the order in which they are put.
      input_lengths, target_lengths: {probe: tokens} that replace the records'; the key "*" replaces
        all. A target length counts the start token, as Hugging Face's does.
    """

    records: Mapping[str, Probe]
    input_lengths: Mapping[str, int]
    target_lengths: Mapping[str, int]

    def check_lengths(self, known: Iterable[str]) -> None:
        """Raises `UserError` for a length that is none, or of no probe among `known`."""
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
        return tuple(given.get(probe, given.get("*", default)) for given, default in pairs)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the probes; () is none."""
        return tuple(self.records)


def chosen_records(
    probes: Sequence[str | Probe], published: Mapping[str, Probe], setting: str, empty: bool = False
) -> dict[str, Probe]:
    """{name: record} of what a setting lists.

    Args:
      probes: records, or names in `published`.
      published: the records that have names.
      setting: its name, for complaints.
      empty: whether there may be none.

    Raises:
      UserError: the list is none, has something else, or has two probes of one name.
    """
    listed = isinstance(probes, Sequence) and not isinstance(probes, str)
    own = {p.name: p for p in probes if isinstance(p, Probe)} if listed else {}
    names = [p.name if isinstance(p, Probe) else p for p in probes] if listed else probes
    checks.require_names((*published, *own), empty=empty, **{setting: names})
    if twice := [name for name in names if names.count(name) > 1]:
        raise UserError(f"{setting} has two probes {twice[0]!r}; give each a name of its own.")
    return {name: own.get(name) or published[name] for name in names}
