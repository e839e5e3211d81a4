"""What `import ckl_jax as ckl` offers to scripts and notebooks.

Tables are pandas' DataFrames. Bad input raises `UserError`, in one sentence. JAX is not imported
until a model is asked or trained.
"""

import dataclasses
import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckl_jax import files
from ckl_jax.analysis import rows as probe_rows
from ckl_jax.errors import UserError

if TYPE_CHECKING:
    import matplotlib.figure
    import pandas

Folder = str | os.PathLike
BLANK = "____"


def load(folder: Folder) -> "Run | Update | Updates":
    """Opens what a command has written.

    Args:
      folder: a MODEL_DIR of `t5x train` that was probed, the --out of `ckl update`, or one update
        in it.

    Raises:
      UserError: it is none of these, or damaged.
    """
    path = Path(folder)
    if (path / "registry.json").is_file():
        return Updates(path)
    if (path / "verdict.json").is_file() and (path / "ledger.jsonl").is_file():
        return Update(path)
    return Run(path)


class Run:
    """A run of `t5x train` with its probes.

    Attributes:
      path: its MODEL_DIR.
      is_finished: whether its training has ended; else its rows are those so far.
    """

    def __init__(self, folder: Folder):
        """See `load`."""
        self._run = probe_rows.Run.open(folder)
        self.path = self._run.path
        self.is_finished = bool(self._run.summary)

    @property
    def steps(self) -> tuple[int, ...]:
        """After how many steps it was probed."""
        return self._run.steps

    def scores(self, step: int | None = None) -> "pandas.DataFrame":
        """A row for each probe: means over items in 0..1, with 95 % intervals of EM.

        Args:
          step: of the evaluation; None is the last.
        """
        import pandas

        from ckl_jax.analysis.statistics import bootstrap_means, interval

        found = {}
        for name, scored in self._at(step).items():
            low, high = interval(bootstrap_means(scored.em[None])[0])
            found[name] = {
                "em": float(scored.em.mean()),
                "low": low,
                "high": high,
                "f1": float(scored.f1.mean()),
                **{column: float(x.mean()) for column, x in scored.columns.items()},
                "items": len(scored.items),
            }
        return pandas.DataFrame.from_dict(found, orient="index").rename_axis("probe")

    def rows(self, step: int | None = None) -> "pandas.DataFrame":
        """A row for each item of each probe: what was asked and answered.

        Args:
          step: of the evaluation; None is the last.
        """
        import pandas

        tables = [
            pandas.DataFrame(list(scored.rows)).assign(probe=name)
            for name, scored in self._at(step).items()
        ]
        return pandas.concat(tables, ignore_index=True)

    def ledger(self, initial: Folder | None = None) -> "pandas.DataFrame":
        """The `rows` of the last evaluation with the state of each fact (`analysis.ledger`).

        Args:
          initial: MODEL_DIR of the model before; None is what this run began with.

        Raises:
          UserError: that is not known, or was asked other items.
        """
        import pandas

        from ckl_jax.analysis.ledger import STATES, fact_states

        before = (
            probe_rows.Run.open(initial).last if initial else probe_rows.initial_scores(self._run)
        )
        if before is None:
            raise UserError(f"{self.path} does not say what it started from; give `initial`.")
        tables = []
        for name, now in self._run.last.items():
            if name in before:
                states = [STATES[i] for i in fact_states(now, before[name])]
                table = pandas.DataFrame(list(now.rows)).assign(probe=name, state=states)
                tables.append(table.assign(before=[r["predictions"][0] for r in before[name].rows]))
        if not tables:
            raise UserError(f"{self.path} and the model before it share no probe.")
        return pandas.concat(tables, ignore_index=True)

    def metrics(self) -> "pandas.DataFrame":
        """A row for each line of metrics.jsonl: step, split, loss and the like."""
        import pandas

        path = self.path / probe_rows.METRICS_FILE
        return pandas.DataFrame(list(probe_rows.read_metrics(path)) if path.exists() else [])

    def _at(self, step: int | None) -> dict[str, probe_rows.Scored]:
        return self._run.last if step is None else self._run.at(step)

    def __repr__(self) -> str:
        partial = "" if self.is_finished else ", not finished"
        return f"Run({str(self.path)!r}, step {self.steps[-1]:,}{partial})"

    def _repr_html_(self) -> str:
        return f"<p>{_escaped(self)}</p>{self.scores()._repr_html_()}"


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
        self.path = Path(folder)
        self._verdict = files.read_json_object(self.path / "verdict.json")
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
        told = _escaped(f"{self!r}: {'; '.join(self.reasons)}")
        return f"<p>{told}</p>{self.scores()._repr_html_()}"


class Updates(Sequence[Update]):
    """All finished updates of a folder, in order.

    Attributes:
      path: the folder.
    """

    def __init__(self, folder: Folder):
        from ckl_jax.updates.registry import Registry

        self.path, self._registry = Path(folder), Registry(folder)

    @property
    def current(self) -> Path:
        """The folder of the model in use."""
        return Path(self._registry.current_model)

    def history(self) -> "pandas.DataFrame":
        """A row for each update: its method, verdict and scores."""
        import pandas

        found = [
            {"update": h["name"], "date": h["date"], "method": h["method"], "verdict": h["verdict"]}
            | {name: score["value"] for name, score in h["scores"].items()}
            for h in self._registry.history()
        ]
        return pandas.DataFrame(found).set_index("update") if found else pandas.DataFrame()

    def __getitem__(self, i):
        found = self._registry.updates()[i]
        return list(map(Update, found)) if isinstance(i, slice) else Update(found)

    def __len__(self) -> int:
        return len(self._registry.updates())

    def __repr__(self) -> str:
        return f"Updates({str(self.path)!r}, {len(self)}, current {str(self.current)!r})"

    def _repr_html_(self) -> str:
        return f"<p>{_escaped(self)}</p>{self.history()._repr_html_()}"


class Model:
    """A model in Hugging Face's format, to be asked.

    Args:
      folder: of the model, or its name on the hub.

    Raises:
      UserError: there is no such model, it has no tokenizer, or it is of an unknown kind.
    """

    def __init__(self, folder: Folder):
        from ckl_jax.checkpoints.hub import folder_of

        self.path = Path(folder_of(str(folder)))

    @functools.cached_property
    def _scorer(self) -> Any:
        from ckl_jax.papers.lm_pub_quiz.probe import open_scorer

        return open_scorer(self.path)

    def log_prob(self, text: str) -> float:
        """The log probability of a text, in nats; of a decoder without BOS, from its 2nd token."""
        from ckl_jax.data.facts.statements import Statement

        whole = Statement(text, (), ((0, len(text)),))
        return float(self._scorer.token_scores([whole]).values.sum())

    def rank(self, question: str, answers: Sequence[str]) -> "pandas.DataFrame":
        """Answers by the probability of the sentence with each, best first (LM-PUB-QUIZ).

        Args:
          question: a sentence with one blank, ____.
          answers: two or more to choose from.

        Returns:
          answer and log_prob (nats).

        Raises:
          UserError: there is no blank, or more than one, or fewer than two answers.
        """
        import pandas

        from ckl_jax.data.facts.statements import Statement

        before, blank, after = question.partition(BLANK)
        if not blank or BLANK in after:
            raise UserError(f"The question {question[:80]!r} must have one blank, {BLANK}.")
        if len(answers) < 2:
            raise UserError("Give two answers or more to choose from.")
        span = len(before)
        filled = [Statement(before + a + after, (), ((span, span + len(a)),)) for a in answers]
        sums = self._scorer.token_scores(filled).values.sum(1)
        table = pandas.DataFrame({"answer": list(answers), "log_prob": sums.astype(float)})
        return table.sort_values("log_prob", ascending=False, ignore_index=True, kind="stable")

    def __repr__(self) -> str:
        return f"Model({str(self.path)!r})"


def compare(runs: Folder | Sequence[Folder], metric: str = "em") -> "pandas.DataFrame":
    """The main table of CKL: a row for each run, scores in percent with intervals, and FUAR.

    Args:
      runs: MODEL_DIRs, the Initial model first; or one folder that holds them, as of `ckl demo`.
      metric: "em" or "f1".

    Returns:
      Columns PROBE, PROBE_low, PROBE_high, and PROBE_p (against Vanilla, Holm's correction) of
      each probe; fuar, fuar_low and fuar_high, infinite where nothing was gained.

    Raises:
      UserError: they were not probed, or do not fit together.
    """
    import pandas

    from ckl_jax.analysis.main_table import compute_table

    table = compute_table(_study(runs), metric)
    found = {}
    for row in table["rows"]:
        cells = {}
        for probe, score in row["scores"].items():
            cells |= {probe: score["value"]}
            cells |= {f"{probe}_{end}": score[end] for end in ("low", "high")}
            if test := row["tests"].get(probe):
                cells[f"{probe}_p"] = test["p_holm"]
        if row["fuar"]:
            ends = {"fuar": "value", "fuar_low": "low", "fuar_high": "high"}
            infinite = {None: float("inf")}
            cells |= {k: infinite.get(row["fuar"][e], row["fuar"][e]) for k, e in ends.items()}
        found[row["label"]] = cells
    return pandas.DataFrame.from_dict(found, orient="index").rename_axis("run")


def plot(runs: Folder | Sequence[Folder], kind: str = "balance") -> "matplotlib.figure.Figure":
    """A figure of the report, for a notebook or `savefig`.

    Args:
      runs: as of `compare`.
      kind: "curves" (scores by epoch), "balance" (forgotten against gained), "cost" (forgotten
        against FLOPs), "fuar" or "ledger" (states of facts).

    Raises:
      UserError: there is no such kind, or nothing to draw it of.
    """
    from ckl_jax.analysis import figures
    from ckl_jax.analysis.main_table import compute_table

    study = _study(runs)
    kinds = {
        "curves": lambda: figures.plot_curves.figure(study, figures.read_curves(study)),
        "balance": lambda: figures.plot_balance.figure(compute_table(study)),
        "cost": lambda: figures.plot_cost.figure(compute_table(study)),
        "fuar": lambda: figures.plot_fuar.figure(compute_table(study)),
        "ledger": lambda: figures.plot_ledger.figure(study),
    }
    if kind not in kinds:
        raise UserError(f"There is no figure {kind!r}; there are {', '.join(kinds)}.")
    if (drawn := kinds[kind]()) is None:
        raise UserError(f"The runs have nothing to draw {kind!r} of.")
    return drawn


def _study(runs: Folder | Sequence[Folder]) -> Any:
    from ckl_jax.analysis.report import find_runs
    from ckl_jax.analysis.study import load_study

    return load_study(find_runs([runs] if isinstance(runs, str | os.PathLike) else runs))


def update(
    model: Folder | None = None, *, documents: Folder, out: Folder, **settings: Any
) -> Update:
    """Updates a model on new text, as `ckl update` does.

    Args:
      model: Hugging Face folder or name to begin with; None goes on with the current one.
      documents: the text.
      out: folder of all updates of this model.
      **settings: further options of `ckl update`, such as `method="mix_review"`.

    Returns:
      The update; without new text, the last one there is.

    Raises:
      UserError: bad input, with nothing lost; or nothing new and no update yet.
    """
    from ckl_jax.cli.progress_line import ProgressLine
    from ckl_jax.updates import job

    known = {field.name for field in dataclasses.fields(job.Update)}
    if unknown := sorted(settings.keys() - known):
        raise UserError(f"update() has no {unknown[0]!r}; there are {', '.join(sorted(known))}.")
    given = {"model": None if model is None else str(model), "documents": str(documents)}
    with ProgressLine() as progress:
        job.update(job.Update(**given, out=str(out), **settings), progress)
    done = Updates(out)
    if not done:
        raise UserError(f"{documents} has nothing to learn, and {out} no update yet.")
    return done[-1]


def _escaped(shown: Any) -> str:
    from markupsafe import escape

    return str(escape(str(shown)))
