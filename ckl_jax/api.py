"""What `import ckl_jax as ckl` offers to scripts and notebooks; `jobs.py` has what runs something.

Tables are pandas' DataFrames. Bad input raises `UserError`, in one sentence. JAX is not imported
until a model is queried.
"""

import functools
import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from ckl_jax import checks, files
from ckl_jax.analysis import rows as probe_rows
from ckl_jax.errors import UserError

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

    from ckl_jax.analysis.study import Study
    from ckl_jax.data.facts.relational import Relation
    from ckl_jax.papers.lm_pub_quiz.ranking import Evaluator

Folder = str | os.PathLike


@checks.typed
def load(folder: Folder, trusted: Sequence[str] = ()) -> Any:
    """Opens what a command has written: a `Run`, `Update`, `Updates`, `Staleness` or `Intervals`.

    A type checker is told which: `run: ckl.Run = ckl.load("runs/demo/lora")`.

    Args:
      folder: a MODEL_DIR of `t5x train`; the --out of `ckl update`, or one update in it; that of
        `ckl mind-the-gap` or `ckl temporalwiki`.
      trusted: modules of yours that the run's gin file may import when its model is queried.

    Raises:
      UserError: it is none of these, or damaged.
    """
    from ckl_jax.papers.mind_the_gap.analysis.seeds import is_study
    from ckl_jax.papers.temporalwiki.analysis.results import RECORD

    path = Path(folder)
    if not path.exists():
        raise UserError(
            f"No folder {path}; run the command that writes it, or give a MODEL_DIR of `t5x train` "
            "or the --out of `ckl update`, `temporalwiki` or `mind-the-gap`."
        )
    if (path / RECORD).is_file():
        return Intervals(path)
    if (path / "registry.json").is_file():
        return Updates(path)
    if (path / "verdict.json").is_file() and (path / "ledger.jsonl").is_file():
        return Update(path)
    if is_study(path) and (path / "results.json").is_file():
        return Staleness(files.read_json_object(path / "results.json", files.ANY_NUMBER))
    run = Run(path, trusted=trusted)
    try:
        _ = run._run  # says what is wrong with it, if anything is
    except probe_rows.NotProbed:
        begun = any((path / name).is_file() for name in ("config.gin", probe_rows.METRICS_FILE))
        if not (begun or any(path.glob("checkpoint_*"))):  # else it has metrics, or a model
            raise
    return run


class Model:
    """A model that answers, scores and ranks.

    It is opened when it is first used, which raises `UserError` for what is no model.

    Args:
      model: a Hugging Face folder or name, a MODEL_DIR, or a live model of transformers.
      tokenizer: of a live model: one of transformers, or its folder or name.
      **settings: such as `bos`, `dtype` or `batch_size` (`papers.lm_pub_quiz.settings.Scoring`).

    Attributes:
      opened_from: `model` and `tokenizer`, by which `probe` and `Evaluator` open it too.
    """

    def __init__(self, model: Any, tokenizer: Any = None, **settings: Any):
        from ckl_jax.papers.lm_pub_quiz.settings import Scoring

        checks.settings(type(self).__name__, Scoring, settings)
        self.opened_from, self._options = (model, tokenizer), settings

    @functools.cached_property
    def _evaluator(self) -> "Evaluator":
        from ckl_jax.papers.lm_pub_quiz.ranking import Evaluator

        return Evaluator.from_model(*self.opened_from, **self._options)

    @checks.typed
    def ask(self, text: str, *, length: int = 10, beams: int = 2) -> str:
        """What the model writes in place of the blank, or behind a text without one.

        Args:
          text: with one blank, `____` or `_X_`; a decoder reads only what is before it.
          length: tokens of the answer, at most.
          beams: of the search.
        """
        from ckl_jax.papers.lm_pub_quiz.ranking import readable
        from ckl_jax.probes.closed_book import answer

        checks.require_int(1, length=length, beams=beams)
        with readable(text), self._evaluator.on_mesh():
            scorer = self._evaluator.scorer
            return answer(scorer.model, scorer.params, text, length, beams)

    @checks.typed
    def log_prob(self, text: str) -> float:
        """The log probability of a text, in nats; of a decoder without BOS, from its 2nd token."""
        return self._evaluator.evaluate_item("[Y]", [text], capitalize=False)[0]

    @checks.typed
    def rank(self, question: str, answers: "Sequence[str] | Relation") -> "pandas.DataFrame":
        """Answers by the probability of the sentence with each, best first (LM-PUB-QUIZ).

        Args:
          question: a sentence with one blank, `____` or `_X_`; with a relation, a subject.
          answers: two or more to choose from, or a relation: its first template is the sentence,
            and its options are the answers.

        Returns:
          Columns answer and log_prob (nats).
        """
        import pandas

        from ckl_jax.data.facts.ckl_files import BLANK, normalize_blank
        from ckl_jax.data.facts.relational import Relation

        if isinstance(answers, Relation):
            statement, subject = answers.templates[0], question
            options, capitalize = list(answers.answer_labels), True
        else:
            is_list = isinstance(answers, Iterable) and not isinstance(answers, str)
            options, capitalize = list(answers) if is_list else [], False
            if not is_list or not all(isinstance(option, str) for option in options):
                known = "a list of texts, or a relation, such as Dataset.from_name('BEAR')['P36']"
                raise UserError(f"answers is {answers!r}; give {known}.")
            statement, subject = normalize_blank(question, "rank()").replace(BLANK, "[Y]"), ""
        if len(options) < 2:
            raise UserError("Give a list of two answers or more to choose from, or a relation.")
        sums = self._evaluator.evaluate_item(statement, options, subject, capitalize=capitalize)
        table = pandas.DataFrame({"answer": options, "log_prob": sums})
        return table.sort_values("log_prob", ascending=False, ignore_index=True, kind="stable")

    def __repr__(self) -> str:
        source, _ = self.opened_from
        live = hasattr(source, "save_pretrained")
        return f"Model({type(source).__name__ if live else repr(str(source))})"


class Run(Model):
    """A run of `t5x train`: its tables, and its model at the newest checkpoint.

    Attributes:
      path: its MODEL_DIR.
      is_finished: whether its training has ended; else its rows are those so far.
      plot: its figures, `Plots`.
    """

    def __init__(self, folder: Folder, **settings: Any):
        super().__init__(folder, **settings)
        self.path = Path(folder)
        self.is_finished = (self.path / "summary.json").is_file()
        self.plot = Plots(self.path)

    @functools.cached_property
    def _run(self) -> probe_rows.ProbedRun:
        return probe_rows.ProbedRun.open(self.path)

    @property
    def steps(self) -> tuple[int, ...]:
        """After how many steps it was probed; () if it never was."""
        return self._run.steps if (self.path / "probes").is_dir() else ()

    def scores(self, step: int | None = None) -> "pandas.DataFrame":
        """A row for each probe at a step (None: the last): means in 0..1, 95 % intervals of EM."""
        import pandas

        from ckl_jax.analysis.statistics import bootstrap_means, interval

        rows = {}
        for name, scored in self._at(step).items():
            low, high = interval(bootstrap_means(scored.em[None])[0])
            rows[name] = {
                "em": float(scored.em.mean()),
                "low": low,
                "high": high,
                "f1": float(scored.f1.mean()),
                **{column: float(x.mean()) for column, x in scored.columns.items()},
                "items": len(scored.items),
            }
        return pandas.DataFrame.from_dict(rows, orient="index").rename_axis("probe")

    def rows(self, step: int | None = None) -> "pandas.DataFrame":
        """A row for each item of each probe at a step: question and answers, best first."""
        import pandas

        tables = [
            pandas.DataFrame(list(scored.rows)).assign(probe=name)
            for name, scored in self._at(step).items()
        ]
        return pandas.concat(tables, ignore_index=True)

    def ledger(self, initial: "Folder | Run | None" = None) -> "pandas.DataFrame":
        """The `rows` of the last evaluation with the state of each fact (`analysis.ledger`).

        Args:
          initial: run or MODEL_DIR of the model before; None is what this run began with.

        Raises:
          UserError: that is not known, or was evaluated on other items.
        """
        import pandas

        from ckl_jax.analysis.ledger import rows

        initial = initial.path if isinstance(initial, Run) else initial
        checks.require_type(Folder | None, initial=initial)
        return pandas.DataFrame(rows(self.path, None if initial is None else Path(initial)))

    def metrics(self) -> "pandas.DataFrame":
        """A row for each line of metrics.jsonl: step, split, loss and the like."""
        import pandas

        path = self.path / probe_rows.METRICS_FILE
        return pandas.DataFrame(list(probe_rows.read_metrics(path)) if path.exists() else [])

    def _at(self, step: int | None) -> dict[str, probe_rows.Scored]:
        return self._run.last if step is None else self._run.at(step)

    def __repr__(self) -> str:
        probed = f"step {self.steps[-1]:,}" if self.steps else "not probed"
        partial = "" if self.is_finished else ", not finished"
        return f"Run({str(self.path)!r}, {probed}{partial})"

    def _repr_html_(self) -> str:
        return _html(self, self.scores() if self.steps else None)


class Plots:
    """Figures of `runs`, as of `compare`, or of a `Staleness`.

    Each method draws into `ax`, or into a new figure, and returns its Axes. With several probes and
    no `ax` there is a panel for each, and an array of Axes is returned.
    """

    def __init__(self, runs: Any = (), staleness: Any = None):
        self._runs, self._staleness = runs, staleness

    def __repr__(self) -> str:
        return f"Plots({self._staleness or self._runs!r})"

    @functools.cached_property
    def _study(self) -> "Study":
        return _study(self._runs)

    def curves(self, probe: str | None = None, ax: "Axes | None" = None) -> Any:
        """Exact match of a probe (or of each) by epoch; dashed, the Initial model."""
        from ckl_jax.analysis.figures import draw_curves, read_curves

        curves = {k: c for k, c in read_curves(self._study).items() if len(c) > 1}
        probes = self._study.probes if curves else []
        return _panels(lambda at, p: draw_curves(at, self._study, curves, p), probes, probe, ax)

    def fates(self, probe: str | None = None, ax: "Axes | None" = None) -> Any:
        """Percent of a probe's facts (or of each probe's) kept, updated, learned, forgotten, ..."""
        from ckl_jax.analysis.figures import draw_ledger

        study = self._study
        return _panels(lambda at, p: draw_ledger(at, study, p), study.compared, probe, ax)

    def pareto(self, ax: "Axes | None" = None) -> "Axes":
        """What was forgotten against what was gained, a point for each updated model."""
        from ckl_jax.analysis.figures import draw_balance
        from ckl_jax.analysis.main_table import compute_table

        table = compute_table(self._study)
        known = any(row["fuar"] for row in table["rows"])
        return _panels(lambda at, _: draw_balance(at, table), [""] * known, None, ax)

    def staleness(self, ax: "Axes | None" = None) -> "Axes":
        """Perplexity over the control's by month, with 95 % bands (Mind the Gap, Figure 1)."""

        from ckl_jax.analysis.figures import few_ticks

        def draw(ax: "Axes", _: str) -> None:
            table = self._staleness.months()
            for name in self._staleness.results["months"]:
                (line,) = ax.plot(table.index, table[name], marker=".", label=name)
                ends = table[f"{name}_low"], table[f"{name}_high"]
                ax.fill_between(table.index, *ends, alpha=0.15, lw=0, color=line.get_color())
            ax.axhline(0.0, color="#808080", lw=1.0)
            ax.set(xlabel="month", ylabel="perplexity over the control's (%)")
            few_ticks(ax, {month: i for i, month in enumerate(table.index)})

        return _panels(draw, [""] * bool(self._staleness), None, ax)


def _panels(draw: Callable, probes: Sequence[str], probe: str | None, ax: "Axes | None") -> Any:
    from ckl_jax.analysis import figures

    if not probes or probe not in (None, *probes):
        known = ", ".join(filter(None, probes)) or "none"
        raise UserError(f"Nothing to draw; probes that can be drawn: {known}.")
    if ax is not None and not hasattr(ax, "plot"):
        raise UserError(f"ax is {ax!r}; give Axes of matplotlib.")
    # An `ax` has room for one.
    chosen = [probe] if probe is not None else probes[:1] if ax is not None else probes
    with figures.style():
        import matplotlib.pyplot as plt  # so that a notebook shows the figure

        size = (7.4, 4.2) if len(chosen) == 1 else None
        axes = [ax] if ax is not None else figures.panels(len(chosen), 2, size, plt.figure)[1]
        for at, one in zip(axes, chosen, strict=True):
            draw(at, one)
        if ax is not None:
            ax.legend(fontsize=8)
        else:
            figures.legend(axes[0].figure, axes, beside=len(axes) == 1)
    return axes[0] if len(chosen) == 1 else axes


class Staleness:
    """How perplexity grows with time after training (Mind the Gap).

    Attributes:
      results: all numbers, as in results.json.
      plot: `plot.staleness(ax)`.
    """

    def __init__(self, results: dict[str, Any]):
        self.results, self.plot = results, Plots(staleness=self)

    def months(self) -> "pandas.DataFrame":
        """Percent of perplexity over the control's by month: MODEL, MODEL_low, MODEL_high."""
        import pandas

        columns = {
            name + end: pandas.Series(curve[of], index=curve["labels"])
            for name, curve in self.results["months"].items()
            for end, of in (("", "values"), ("_low", "low"), ("_high", "high"))
        }
        return pandas.DataFrame(columns).rename_axis("month")

    def __repr__(self) -> str:
        return f"Staleness({', '.join(self.results['months'])})"

    def _repr_html_(self) -> str:
        return _html(self, self.months())


class Intervals:
    """Updates from dump to dump (TemporalWiki), the folder of `ckl temporalwiki`.

    Attributes:
      path: the folder.
      runs: {(interval, method): `Run`} of the updates there are.
    """

    def __init__(self, folder: Folder):
        from ckl_jax.papers.temporalwiki.analysis.results import load

        self.path = Path(folder)
        methods = load(self.path).models.values()
        self.runs = {(m.interval, m.method): Run(m.path) for of in methods for m in of.values()}

    def matrix(self) -> "pandas.DataFrame":
        """Perplexity of changed facts, a row for each model and interval of facts (Figure 4)."""
        import pandas

        from ckl_jax.papers.temporalwiki.analysis.tables import matrix_rows

        matrices = files.read_json_object(self.path / "tables.json")["matrices"]
        return pandas.DataFrame(matrix_rows(matrices))

    def __repr__(self) -> str:
        return f"Intervals({str(self.path)!r}, {len(self.runs)} updates)"

    def _repr_html_(self) -> str:
        return _html(self, self.matrix() if (self.path / "tables.json").is_file() else None)


class Update:
    """A finished update of `ckl update`.

    Attributes:
      path: its folder.
      verdict: "ship", "do not ship" or "not enough evidence".
      reasons: sentences.
      report: the page.
      model: the folder of the updated model; None where it was deleted.
    """

    def __init__(self, folder: Folder):
        from ckl_jax.updates.records import read as read_record

        self.path = Path(folder)
        self._verdict = read_record(self.path, "verdict.json")
        self.verdict: str = self._verdict["verdict"]
        self.reasons: list[str] = self._verdict["reasons"]
        self.report = self.path / "report.html"
        model = self.path / "model"
        self.model = model if model.is_dir() else None

    def scores(self) -> "pandas.DataFrame":
        """A row for each score (docs/update.md): value, low, high and n."""
        import pandas

        scores = self._verdict["scores"]
        return pandas.DataFrame.from_dict(scores, orient="index").rename_axis("score")

    def ledger(self) -> "pandas.DataFrame":
        """A row for each fact: question, answers before and after, state, tag, evidence."""
        import pandas

        return pandas.DataFrame(list(files.read_jsonl(self.path / "ledger.jsonl")))

    def __repr__(self) -> str:
        return f"Update({str(self.path)!r}, {self.verdict})"

    def _repr_html_(self) -> str:
        return _html(f"{self!r}: {'; '.join(self.reasons)}", self.scores())


class Updates(Sequence[Update]):
    """All finished updates of a folder, in order.

    Attributes:
      path: the folder.
    """

    def __init__(self, folder: Folder):
        from ckl_jax.updates.registry import Registry

        self.path, self._registry = Path(folder), Registry(str(folder))

    @property
    def current(self) -> Path:
        """The folder of the model in use."""
        return Path(self._registry.current_model)

    def history(self) -> "pandas.DataFrame":
        """A row for each update: its method, verdict and scores."""
        import pandas

        rows = [
            {"update": h["name"], "date": h["date"], "method": h["method"], "verdict": h["verdict"]}
            | {name: score["value"] for name, score in h["scores"].items()}
            for h in self._registry.history()
        ]
        return pandas.DataFrame(rows).set_index("update") if rows else pandas.DataFrame()

    @overload
    def __getitem__(self, i: int) -> Update: ...

    @overload
    def __getitem__(self, i: slice) -> list[Update]: ...

    def __getitem__(self, i: int | slice) -> Update | list[Update]:
        updates = self._registry.updates()
        return list(map(Update, updates[i])) if isinstance(i, slice) else Update(updates[i])

    def __len__(self) -> int:
        return len(self._registry.updates())

    def __repr__(self) -> str:
        return f"Updates({str(self.path)!r}, {len(self)}, current {str(self.current)!r})"

    def _repr_html_(self) -> str:
        return _html(self, self.history())


Runs = Folder | Run | Sequence[Folder | Run]


@checks.typed
def compare(runs: Runs, metric: str = "em") -> "pandas.DataFrame":
    """The main table of CKL: a row for each run, scores in percent with intervals, and FUAR.

    Args:
      runs: MODEL_DIRs or `Run`s, the Initial model first; or one folder that holds them, as of
        `ckl demo`.
      metric: "em" or "f1".

    Returns:
      Columns PROBE, PROBE_low, PROBE_high, and PROBE_p of each probe (a paired test against
      Vanilla, or else the first updated model, with Holm's correction); fuar, fuar_low and
      fuar_high, infinite where nothing was gained.

    Raises:
      UserError: they were not probed, or do not fit together.
    """
    import pandas

    from ckl_jax.analysis.main_table import compute_table

    checks.require_choice(("em", "f1"), metric=metric)
    table = compute_table(_study(runs), metric)
    rows = {}
    for row in table["rows"]:
        cells: dict[str, float] = {}
        for probe, score in row["scores"].items():
            cells |= {probe: score["value"]}
            cells |= {f"{probe}_{end}": score[end] for end in ("low", "high")}
            if test := row["tests"].get(probe):
                cells[f"{probe}_p"] = test["p_holm"]
        if row["fuar"]:
            ends = {"fuar": "value", "fuar_low": "low", "fuar_high": "high"}
            infinite = {None: float("inf")}
            cells |= {k: infinite.get(row["fuar"][e], row["fuar"][e]) for k, e in ends.items()}
        rows[row["label"]] = cells
    return pandas.DataFrame.from_dict(rows, orient="index").rename_axis("run")


def _study(runs: Runs) -> "Study":
    from ckl_jax.analysis.report import find_runs
    from ckl_jax.analysis.study import load_study

    checks.require_type(Runs, runs=runs)
    several = [runs] if isinstance(runs, str | os.PathLike | Run) else runs
    paths = (run.path if isinstance(run, Run) else Path(run) for run in several)
    study = load_study(find_runs(paths))
    if isinstance(runs, str | os.PathLike) and study.initial and not study.methods:
        raise UserError(
            f"{os.fspath(runs)} holds the Initial model and no update beside it; give a folder of "
            "`ckl demo` or runs. Those of another study are in `ckl.load(folder).runs`."
        )
    for note in study.notes:
        warnings.warn(note, stacklevel=3)
    return study


@checks.typed
def compare_seeds(folders: Sequence[Folder]) -> "pandas.DataFrame":
    """The table of CKL over demos of several seeds, as `ckl report --seeds` writes it.

    Args:
      folders: two or more of `ckl demo`, one for each seed.

    Returns:
      A row for each method: columns PROBE, PROBE_low and PROBE_high, the mean and the smallest and
      largest of the seeds in percent, and likewise of fuar, whose mean is NaN where one seed gained
      nothing, and of what the trainings cost.

    Raises:
      UserError: these are not folders of demos, or one is given twice.
    """
    import pandas

    from ckl_jax.analysis.seeds import check_folders, of_demos

    paths = [Path(folder) for folder in folders]
    check_folders(paths)
    ends = {"": "mean", "_low": "low", "_high": "high"}
    rows = {
        row["label"]: {
            f"{name}{end}": column[of]
            for name, column in row["columns"].items()
            for end, of in ends.items()
        }
        for row in of_demos(paths)[1]
    }
    table = pandas.DataFrame.from_dict(rows, orient="index", dtype=float)
    return table.rename_axis("method")


def _html(repr_text: Any, table: "pandas.DataFrame | None") -> str:
    from markupsafe import escape

    return f"<p>{escape(str(repr_text))}</p>{'' if table is None else table._repr_html_()}"  # type: ignore[operator]
