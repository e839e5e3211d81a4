"""The tables of CKL's paper as scenarios and cells, which `ckl experiment` runs."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ckl_jax.errors import refuse_unknown
from ckl_jax.papers.ckl.analysis import published_ckl
from ckl_jax.papers.ckl.data.kilt import KILT_SETS
from ckl_jax.papers.ckl.methods import PAPER, STRENGTHS, folder

INITIAL = "initial"
KILT = "kilt"  # the table, and the folder of its files
OVERLAYS = "experiments/ckl/{}.gin"
_IL, _P1, _P2 = "invariant_lama", "new_lama_easy_p1", "new_lama_easy_p2"
_MAIN = (_IL, "updated_lama", "new_lama", "new_lama_easy")


@dataclasses.dataclass(frozen=True)
class Cell:
    """One training of a scenario."""

    name: str  # of its row; a method, and a learning rate where there are several
    method: str  # of `ckl_<method>.gin`
    rate: float | None = None  # LEARNING_RATE; None is the overlay's
    bindings: tuple[str, ...] = ()  # further ones, such as of a method's strength


@dataclasses.dataclass(frozen=True)
class Tuning:
    """The light-tuning of a decoder-only model: what it is tuned on, and its probes."""

    name: str  # of its folders
    overlay: str
    probe: str  # the column of the table


@dataclasses.dataclass(frozen=True)
class Scenario:
    """The corpora that methods are trained on.

    Attributes:
      name: of its folder, and in the paper's numbers.
      acquired: probes that FUAR takes for new knowledge; () is the usual choice.
      after: the scenario whose models these start from; None is the Initial model.
      tuned: all parameters of those models, and of the Initial model, are fine-tuned on a data set
        of KILT: no update, so that no method adds a second set.
      tunings: of GPT-2, which is evaluated after them; () is T5, which is evaluated as it is.
      rates: of methods that are not among the cells; () is the overlay's.
      is_swept: whether each method is trained at each rate of `--rates`, in place of the cells.
      about: what it is trained on, for the title of its table.
    """

    name: str
    overlay: str
    probes: tuple[str, ...]
    cells: tuple[Cell, ...]
    acquired: tuple[str, ...] = ()
    after: str | None = None
    tuned: bool = False
    tunings: tuple[Tuning, ...] = ()
    rates: tuple[float, ...] = ()
    is_swept: bool = False
    about: str = ""

    def cells_of(self, method: str) -> tuple[Cell, ...]:
        """The cells of a method: the paper's, else one at each of `rates`; () if it has none."""
        if cells := tuple(c for c in self.cells if c.method == method and c.name != INITIAL):
            return cells
        # GPT-2 has gin files of the paper's methods alone, of those that need no encoder.
        if self.tunings:
            return ()
        return _at(method, *self.rates) if self.rates else _every((method,))


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A table or figure of a paper."""

    title: str  # what it shows
    scenarios: tuple[Scenario, ...]  # in order; those that are not published are shown in no table
    # {scenario: {row: {probe: EM in percent, "fuar": ...}}}; the data sets of KILT are one table,
    # "kilt", each by its metric
    published: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    analysis: str = "tables"  # what is made of the cells, see `experiment_results`


def _every(methods: Sequence[str]) -> tuple[Cell, ...]:
    return tuple(Cell(folder(method), method) for method in methods)


def _at(method: str, *rates: float) -> tuple[Cell, ...]:
    return tuple(Cell(f"{folder(method)}-{rate:g}", method, rate) for rate in rates)


def sweep(method: str, rates: Sequence[float], strengths: bool) -> Iterator[Cell]:
    """Yields the cells of a method at each rate and, if requested, each strength."""
    for cell in _at(method, *rates):
        yield cell
        if strengths and method in STRENGTHS:
            strength = STRENGTHS[method]
            for value in strength.values:
                name, binding = f"{cell.name}-{strength.name}={value:g}", strength.binding
                yield dataclasses.replace(cell, name=name, bindings=(f"{binding} = {value!r}",))


def _kilt(name: str) -> Scenario:
    """Fine-tuning on a KILT data set; those on AIDA CoNLL-YAGO answer the untrained sets too."""
    # WNED has no training data: CKL scores it with the AY2 model (Table 8).
    measured = (name, *(n for n, form in KILT_SETS.items() if not form.trains))
    # The Initial model is fine-tuned too, as Vanilla is.
    cells = (Cell(INITIAL, "vanilla"), *_every(PAPER))
    return Scenario(
        f"{KILT}_{name}",
        OVERLAYS.format(f"table9/{name}"),
        measured if name == "aidayago2" else (name,),
        cells,
        after="main",
        tuned=True,
    )


def _gpt2(name: str, overlay: str) -> Scenario:
    kinds = {"invariant": _IL, "questions": "new_questions_easy"}
    tunings = tuple(Tuning(k, OVERLAYS.format(f"light_tuning_{k}"), p) for k, p in kinds.items())
    cells = _every([m for m in PAPER if m != "modular"])  # which needs an encoder
    measured = tuple(kinds.values())
    return Scenario(name, OVERLAYS.format(overlay), measured, cells, measured[1:], tunings=tunings)


def _only(scenario: Scenario, *methods: str) -> Scenario:
    """The cells of some methods."""
    return dataclasses.replace(scenario, cells=_every(methods))


_TABLE_2 = Scenario("main", OVERLAYS.format("table2"), _MAIN, _every(PAPER), about="all of D1")
_HALVES = (_IL, _P1, _P2)
_TABLE_3 = (
    Scenario(
        "small", OVERLAYS.format("small"), _HALVES, _every(PAPER), about="SMALL, a tenth of D1"
    ),
    Scenario(
        "p1",
        OVERLAYS.format("p1"),
        _HALVES,
        _every(PAPER),
        (_P1,),
        about="the first half of SMALL",
    ),
    Scenario(
        "p1_p2",
        OVERLAYS.format("p1_p2"),
        _HALVES,
        _every(PAPER),
        (_P2,),
        "p1",
        about="then its second half",
    ),
)
# Table 7 has four rates of Vanilla and two of K-Adapter, on SMALL.
_TABLE_7 = Scenario(
    "rates",
    OVERLAYS.format("table7"),
    (_IL, "new_lama_easy_small"),
    (*_at("vanilla", 1e-5, 1e-4, 5e-4, 1e-3), *_at("k_adapter_k2", 1e-4, 1e-3)),
    rates=(1e-4, 1e-3),
    about="SMALL, at several learning rates",
)
_PARETO = Scenario("pareto", OVERLAYS.format("pareto"), _MAIN[:3], (), is_swept=True)
_DRAWN = ("vanilla", "k_adapter_k2")  # of Figures 2 and 3
EXPERIMENTS = {
    "ckl/table2": Experiment("the main experiment", (_TABLE_2,), published_ckl.TABLE_2),
    "ckl/table3": Experiment("fewer articles, and two phases", _TABLE_3, published_ckl.TABLE_3),
    "ckl/table7": Experiment("learning rates", (_TABLE_7,), published_ckl.TABLE_7),
    "ckl/table8": Experiment(
        "models of Table 2, fine-tuned on KILT",
        (_TABLE_2, *(_kilt(name) for name, form in KILT_SETS.items() if form.trains)),
        published_ckl.TABLE_8,
    ),
    "ckl/table10": Experiment(
        "GPT-2, light-tuned",
        (_gpt2("gpt2_1e-4", "table10"),),
        published_ckl.TABLE_10,
        "light_tuned",
    ),
    "ckl/table11": Experiment(
        "GPT-2 at a larger learning rate, light-tuned",
        (_gpt2("gpt2_1e-3", "table11"),),
        published_ckl.TABLE_11,
        "light_tuned",
    ),
    "ckl/table12": Experiment(
        "predictions that change while training goes on",
        (_only(_TABLE_2, "vanilla", "modular"),),
        analysis="predictions",
    ),
    "ckl/table13": Experiment(
        "the main experiment in F1", (_TABLE_2,), published_ckl.TABLE_13, "f1"
    ),
    "ckl/figure2": Experiment(
        "scores at each epoch", (_only(_TABLE_2, *_DRAWN),), published_ckl.TABLE_2, "curves"
    ),
    "ckl/figure3": Experiment(
        "what is forgotten at each epoch, by passes over how much text",
        (_only(_TABLE_2, *_DRAWN), *(_only(s, *_DRAWN) for s in _TABLE_3)),
        analysis="repeats",
    ),
    "ckl/figure8": Experiment(
        "types of right answers, and how often corpora name them",
        (_only(_TABLE_2, "vanilla"),),
        analysis="answers",
    ),
    "ckl/figure9": Experiment("precision at k", (_TABLE_2,), analysis="precision"),
    "ckl/pareto": Experiment(
        "forgetting against learning, over learning rates", (_PARETO,), analysis="pareto"
    ),
}


def find(name: str) -> Experiment:
    """The experiment of that name; raises `UserError`, which lists all, if there is none."""
    refuse_unknown(name, EXPERIMENTS, f"There is no experiment {name!r}; there are")
    return EXPERIMENTS[name]
