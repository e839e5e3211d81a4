"""What `ckl experiment` runs: the tables of CKL's paper as scenarios, and their cells."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from ckl_jax.analysis import published_ckl
from ckl_jax.data.kilt import KILT_SETS
from ckl_jax.errors import UserError, nearest
from ckl_jax.jobs.demo import METHODS

INITIAL = "initial"
KILT = "kilt"  # the table, and the folder of its files
OVERLAYS = "experiments/ckl/{}.gin"
_IL, _P1, _P2 = "invariant_lama", "new_lama_easy_p1", "new_lama_easy_p2"
_MAIN = (_IL, "updated_lama", "new_lama", "new_lama_easy")


@dataclasses.dataclass(frozen=True)
class Cell:
    """One training of a scenario.

    Attributes:
      name: of its row; a method, and a learning rate where there are several.
      method: of `ckl_<method>.gin`.
      rate: LEARNING_RATE; None is the overlay's.
    """

    name: str
    method: str
    rate: float | None = None


@dataclasses.dataclass(frozen=True)
class Scenario:
    """What methods are trained on.

    Attributes:
      name: of its folder, and in the paper's numbers.
      overlay: gin file.
      probes: what models are asked.
      cells: the trainings.
      acquired: probes that FUAR takes for new knowledge; () is the usual choice.
      after: the scenario whose models these start from; None is the Initial model.
      tuned: all parameters of those models, and of the Initial model, are fine-tuned on a data set
        of KILT: no update, so that no method adds a second set.
    """

    name: str
    overlay: str
    probes: tuple[str, ...]
    cells: tuple[Cell, ...]
    acquired: tuple[str, ...] = ()
    after: str | None = None
    tuned: bool = False


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A table of a paper.

    Attributes:
      title: what it shows.
      scenarios: in order; those that are not published are shown in no table.
      published: {scenario: {row: {probe: EM in percent, "fuar": ...}}}; the data sets of KILT are
        one table, "kilt", each by its metric.
    """

    title: str
    scenarios: tuple[Scenario, ...]
    published: Mapping[str, Mapping[str, Any]]


def _every(methods: Sequence[str]) -> tuple[Cell, ...]:
    return tuple(Cell(method, method) for method in methods)


def _at(method: str, *rates: float) -> tuple[Cell, ...]:
    return tuple(Cell(f"{method}-{rate:g}", method, rate) for rate in rates)


def _kilt(name: str) -> Scenario:
    """Fine-tuning on a data set of KILT; those of AIDA CoNLL-YAGO answer the untrained ones too."""
    asked = (name, *(n for n, form in KILT_SETS.items() if not form.trains))
    cells = (Cell(INITIAL, "vanilla"), *_every(METHODS))
    return Scenario(
        f"{KILT}_{name}", OVERLAYS.format(f"table9/{name}"),
        asked if name == "aidayago2" else (name,), cells, after="main", tuned=True,
    )  # fmt: skip


_TABLE_2 = Scenario("main", OVERLAYS.format("table2"), _MAIN, _every(METHODS))
EXPERIMENTS = {
    "ckl/table2": Experiment(
        "the main experiment",
        (_TABLE_2,),
        published_ckl.TABLE_2,
    ),
    "ckl/table3": Experiment(
        "fewer articles, and two phases",
        (
            Scenario("small", OVERLAYS.format("small"), (_IL, _P1, _P2), _every(METHODS)),
            Scenario("p1", OVERLAYS.format("p1"), (_IL, _P1, _P2), _every(METHODS), (_P1,)),
            Scenario(
                "p1_p2", OVERLAYS.format("p1_p2"), (_IL, _P1, _P2), _every(METHODS), (_P2,), "p1"
            ),
        ),
        published_ckl.TABLE_3,
    ),
    "ckl/table7": Experiment(
        "learning rates",
        (
            Scenario(
                "rates", OVERLAYS.format("rates"), (_IL, "new_lama_easy_small"),
                (*_at("vanilla", 1e-5, 1e-4, 5e-4, 1e-3), *_at("k_adapter_k2", 1e-4, 1e-3)),
            ),
        ),
        published_ckl.TABLE_7,
    ),
    "ckl/table8": Experiment(
        "models of Table 2, fine-tuned on KILT",
        (_TABLE_2, *(_kilt(name) for name, form in KILT_SETS.items() if form.trains)),
        published_ckl.TABLE_8,
    ),
}  # fmt: skip


def find(name: str) -> Experiment:
    """The experiment of that name.

    Raises:
      UserError: there is none; the message lists those that there are.
    """
    if name not in EXPERIMENTS:
        raise UserError(
            f"There is no experiment {name!r}; there are {', '.join(EXPERIMENTS)}."
            f"{nearest(name, EXPERIMENTS)}"
        )
    return EXPERIMENTS[name]
