"""`ckl demo`: the main experiment of the CKL paper, from data to report.

World -> vocabulary -> Initial model on D0 -> every method on D1 -> report. Each training is a
`t5x train` of its gin file in a process of its own, so the demo runs what a user would run, and
goes on where it was when it is started again.
"""

import dataclasses
import functools
from pathlib import Path
from typing import Any, Literal

from ckl_jax import checks
from ckl_jax.analysis import labels
from ckl_jax.options import SomeNames
from ckl_jax.papers.ckl import methods
from ckl_jax.papers.ckl.imported import LENGTHS, T5, Imported
from ckl_jax.train import studies
from ckl_jax.train.subprocess_runs import SUMMARY, Training
from ckl_jax.world.ckl import check_data_dir, check_world
from ckl_jax.world.facts import SOURCES
from ckl_jax.world.timeline import SIZES, VARIANTS

INITIAL = "initial"
# One method of each kind: nothing against forgetting, rehearsal, added parameters.
_TRIAL = ("vanilla", "mix_review", "lora")
# Minutes on two idle cores: the data and the Initial model; a method. Others were not measured.
_MINUTES = {"tiny": (0.5, 0.16), "small": (2.0, 0.4)}
# The smallest size does without the searches for P@k, a tenth of its time; its Initial model does
# without evaluations in between, which no report shows, and its last epoch.
_TINY = ("closed_book.ClosedBook.precision = 'never'",)
_TINY_INITIAL = ("EVAL_PERIOD = 1000000000", "EPOCHS = 6")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Demo(studies.StudySettings):
    """Settings of `ckl demo`.

    Attributes:
      out: Folder of everything; by default runs/demo, or runs/demo-SOURCE.
      source: Simulated facts, or real ones of Wikidata or the World Factbook.
      size: Size of the world.
      world: Simulated world: disjoint, whose texts never state a probed fact in a probe's wording,
        or legacy, whose probes are rows of the training text.
      data: Folder of the real facts and texts (docs/real_facts.md).
      model: Folder of `ckl import-hf`: its T5 and vocabulary in place of the size's; the Initial
        model is trained from it.
      methods: Methods to compare, by default the paper's, or vanilla, mix_review and lora with
        the size tiny; "all" stands for the paper's, "newer" for replay, lora_mix_review, ewc, lwf
        and ema; and gin files of your own methods, such as ckl_mine.gin.
    """

    out: str | None = None
    source: Literal[*SOURCES] = "simulated"
    size: Literal[*SIZES] = "small"
    world: Literal[*VARIANTS] | None = None
    data: str | None = None
    model: str | None = None
    methods: SomeNames = ()

    def __post_init__(self) -> None:
        suffix = "" if self.source == "simulated" else f"-{self.source}"
        self._set(out=self.out or f"runs/demo{suffix}")
        super().__post_init__()
        self._set(world=self.world or VARIANTS[0])
        usual = _TRIAL if self.size == "tiny" else methods.PAPER
        self._set(methods=methods.expand(self.methods or usual))
        checks.require_choice(SOURCES, **{"--source": self.source})
        check_data_dir(self.source, self.data)

    @functools.cached_property
    def imported(self) -> Imported | None:
        """The imported model used instead of the size's own."""
        return Imported.open(self.model) if self.model is not None else None


def run_demo(demo: Demo) -> Path:
    """Runs the demo; returns the path of its report.

    Raises:
      UserError: data are missing, or a training failed; its log's last lines are in the message.
    """
    # Everything that can be refused is refused before the first file is written.
    _check(demo)
    print(plan(demo), flush=True)
    # The folder's record: another start with other settings is refused, but for `methods`.
    with studies.open_study(demo, "demo.json", "demo", free=("methods",)) as study:
        study.step(f"Data: {demo.source}, {demo.world}, seed {demo.seed}")
        _prepare(demo)
        if demo.bindings:
            from ckl_jax.data.tasks.cached import CachedTask
            from ckl_jax.papers.ckl import cost

            tasks = demo.root / "data" / "prepared" / "tasks"
            cost.check_rows(_trainings(demo), functools.partial(CachedTask.rows_in, tasks))
        study.step("Initial model on D0")
        study.run([training(demo, INITIAL)])
        study.step(f"{labels.count(len(demo.methods), 'method')} on D1")
        study.run([training(demo, method) for method in demo.methods])
        study.step("Report")
        # Imported late: figures and templates are not needed while models train.
        from ckl_jax.analysis.report import find_runs, write_report

        # All of the folder, of earlier starts and of the user's own methods too.
        finished = [run for run in find_runs([demo.root]) if (run / SUMMARY).exists()]
        return study.done(write_report(finished, demo.root))


def plan(demo: Demo) -> str:
    """A sentence: what will be done, and how long that takes where it was measured."""
    count = labels.count(len(demo.methods), "method")
    first, each = _MINUTES.get(demo.size, (0.0, 0.0)) if demo.model is None else (0.0, 0.0)
    whole = max(1, round(first + each * len(demo.methods)))
    took = f", about {labels.count(whole, 'minute')} on two idle cores" if first else ""
    return (
        f"Plan: data, an Initial model on the old text (D0), {count} on the new (D1), scores as "
        f"each is done, {demo.root / 'report.html'}{took}. Started again, it goes on where it was."
    )


def _check(demo: Demo) -> None:
    """Refuses settings that would fail later, before anything is written."""
    if not (demo.root / "data" / "ckl" / "manifest.json").exists():
        check_world(demo.source, demo.size, demo.data, demo.world)
    if demo.imported:
        demo.imported.require(T5, "ckl demo")
    methods.check_own(demo.methods, _trainings(demo))
    if demo.bindings:
        studies.refuse_own(demo.bindings, _macros(demo, methods.PAPER[0]))
        studies.check_trainings(_trainings(demo), demo.bindings)


def _prepare(demo: Demo) -> None:
    from ckl_jax.papers.ckl import simulated

    simulated.prepare_for(demo)


def _trainings(demo: Demo) -> list[Training]:
    return [training(demo, name) for name in (INITIAL, *demo.methods)]


def training(demo: Demo, name: str) -> Training:
    """The training of the Initial model, or of a method."""
    files, macros = _gin_files(demo, name), _macros(demo, name)
    bindings = LENGTHS if demo.model else ()
    if demo.size == "tiny":
        bindings += _TINY + (_TINY_INITIAL if name == INITIAL else ())
    own = studies.own_macros(name, macros) if methods.is_own(name) else ()
    folder = methods.folder(name)
    return Training.of(folder, demo.root / folder, files, macros, [*own, *bindings, *demo.bindings])


def _gin_files(demo: Demo, name: str) -> list[str]:
    # Initial replays nothing, which legacy.gin would change.
    legacy = ["data/legacy.gin"] if demo.world == "legacy" and name != INITIAL else []
    facts = [f"data/{demo.source}.gin"] if demo.source != "simulated" else []
    size = [f"{demo.size}.gin"] if demo.size not in ("tiny", "small") else []
    model = [demo.imported.gin_file] if demo.imported else []
    job = ("ckl_initial.gin",) if name == INITIAL else methods.job_files(name)
    return [*job, *size, *legacy, *facts, *model]


def _macros(demo: Demo, name: str) -> dict[str, Any]:
    data = demo.root / "data"
    return {
        "DATA_DIR": data,
        "PROBE_DIR": data / "ckl",
        "CACHE_DIRS": (data / "prepared" / "tasks",),
        # None: Initial trains from random parameters.
        "INITIAL_CHECKPOINT_PATH": demo.root / INITIAL if name != INITIAL else demo.model,
        "RANDOM_SEED": demo.seed,
        "WORLD": demo.world,
        "WORLD_SIZE": demo.size,
        "WORLD_SEED": demo.seed,
        **(demo.imported.macros if demo.imported else {}),
    }
