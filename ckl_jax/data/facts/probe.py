"""The record of a probe set: all that training, evaluation and reports need to know about it.

A set of your own is a `Probe` in a file of your own (examples/templama_probe); nothing here or
elsewhere in the package knows it by name. CKL's published sets are records in `ckl_files.PROBES`.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ckl_jax import checks
from ckl_jax.errors import UserError

ROLES = ("retained", "updated", "acquired")  # of knowledge, in FUAR (CKL, section 3.3)
# Numbers in 0..1 that every row of answers has, for `Probe.columns`.
SCORES = ("em", "f1", "em_old")
# Fields of rows that no metric of a probe may take the place of.
_TAKEN = {"probe", "item", "relation", "date", "input", "answers", "old_answers", "predictions"}
_TAKEN |= {"groups", "overlap"}
_TAKEN |= {"run", "method", "phase", "epoch", "step", "hit_rank", "beams", "probe_record", *SCORES}
_TAKEN |= {"nll", "tokens", "interval", "class", "kind", "score", "metric", "cut"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProbeItem:
    """One question put to a model.

    Attributes:
      id: unique within its probe.
      input: a statement with one blank, such as `<extra_id_0>`, `_X_` or `[MASK]`.
      answers: accepted answers; the first is the training target.
      probe: the probe's name; `read_probe` fills it in.
      old_answers: what was right before (UpdatedLAMA).
      relation: e.g. "P19" or "birthplace"; "" if unknown.
      question: the item as a question; "" if the file has none.
      date: when the answers are valid, such as "2010"; reports show scores by date. "" has none.
      groups: classes of items that reports score apart, such as {"frequency": "1-2"}.
      meta: the row's other columns.
    """

    id: str
    input: str
    answers: tuple[str, ...]
    probe: str = ""
    old_answers: tuple[str, ...] = ()
    relation: str = ""
    question: str = ""
    date: str = ""
    groups: Mapping[str, str] = dataclasses.field(default_factory=dict)
    meta: dict[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Probe:
    """A probe set: how it is read and evaluated, and how reports show it.

    Attributes:
      name: of the probe in rows, settings and names of files; without "/" and "*".
      file: its file, within the data folder or absolute.
      read: makes the items, called as `read(probe, folder)`; `probe.path(folder)` is the file. A
        function, or a declared format such as `ckl_files.CsvFormat`. None: rows only.
      short, long: labels in tables and in titles; default, the name.
      role: which knowledge it is in FUAR: "retained", "updated" or "acquired"; None: not in FUAR.
      group: probes of one role and group count together in FUAR, by the mean of their gaps.
      order: tables sort their columns by it, and of several probes of one role FUAR takes the
        first. CKL's have 0 to 8.
      columns: further numbers that tables show beside the score: names out of `SCORES` and
        `metrics`.
      metrics: {name: score(prediction, answers) in 0..1}, which every row gets too.
      input_length, target_length: tokens; a target length counts the start token of a decode.
      truncates_gold: `ClosedBook.legacy_truncate_gold` cuts its answers to the decoding length.
    """

    name: str
    file: str = ""
    read: Callable[["Probe", Path], Iterable[ProbeItem]] | None = None
    short: str = ""
    long: str = ""
    role: str | None = None
    group: str = ""
    order: int = 100
    columns: tuple[str, ...] = ()
    metrics: Mapping[str, Callable[[str, Sequence[str]], float]] = dataclasses.field(
        default_factory=dict
    )
    input_length: int = 50
    target_length: int = 10
    truncates_gold: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name or set(self.name) & set("/*"):
            raise UserError(f"Probe.name is {self.name!r}; give a text without '/' and '*'.")
        for label in ("short", "long"):
            if not isinstance(getattr(self, label), str):
                raise UserError(f"{self._of(label)} is {getattr(self, label)!r}; give a text.")
            if not getattr(self, label):
                object.__setattr__(self, label, self.name)
        checks.require_choice((*ROLES, None), **{self._of("role"): self.role})
        if not isinstance(self.group, str):
            raise UserError(f"{self._of('group')} is {self.group!r}; give a text.")
        if isinstance(self.order, bool) or not isinstance(self.order, int):
            raise UserError(f"{self._of('order')} is {self.order!r}; give a whole number.")
        checks.require_names(empty=True, **{self._of("columns"): self.columns})
        object.__setattr__(self, "columns", tuple(self.columns))
        checks.require_size(**{self._of("input_length"): self.input_length})
        checks.require_size(**{self._of("target_length"): self.target_length})
        checks.require_int(2, **{self._of("target_length"): self.target_length})
        known = isinstance(self.metrics, Mapping) and all(
            isinstance(name, str) and callable(of) for name, of in self.metrics.items()
        )
        if not known:
            raise UserError(f"{self._of('metrics')} is {self.metrics!r}; give {{name: function}}.")
        if taken := sorted(_TAKEN & set(self.metrics)):
            raise UserError(
                f"{self._of('metrics')} has {taken[0]!r}, which rows have already; rename it."
            )

    def _of(self, field: str) -> str:
        return f"Probe.{field} of {self.name!r}"

    def path(self, folder: str | Path) -> Path:
        """The probe's file in the data folder `folder`."""
        return Path(folder) / self.file

    def check_columns(self) -> None:
        """Raises `UserError` for a column that closed-book rows do not have."""
        known = (*SCORES, *self.metrics)
        checks.require_names(known, empty=True, **{self._of("columns"): self.columns})

    def as_json(self) -> dict[str, Any]:
        """The description of the probe for reports, as rows carry it (`probe_record`)."""
        return {name: getattr(self, name) for name in _REPORTED} | {"columns": list(self.columns)}

    @classmethod
    def from_json(cls, name: str, record: Any, where: str) -> "Probe":
        """The probe of a `probe_record`.

        Args:
          record: as `as_json` made it.
          where: file and row, for the complaint.

        Raises:
          UserError: the record lacks something, or has a wrong value.
        """
        if not isinstance(record, dict):
            raise UserError(f"{where}: probe_record is {record!r}; give an object.")
        if missing := [key for key in _REPORTED if key not in record]:
            raise UserError(f"{where}: the probe_record of {name!r} has no {missing[0]!r}.")
        try:
            return cls(name=name, **{key: record[key] for key in _REPORTED})
        except UserError as e:
            raise UserError(f"{where}: {e}") from e


_REPORTED = ("short", "long", "role", "group", "order", "columns")
