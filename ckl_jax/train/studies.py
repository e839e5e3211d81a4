"""Common parts of all studies: a folder with its settings, steps, trainings, checks of bindings.

A study is a command that makes data, trains models on them and reports. It is started again to go
on: what is finished stays, and other settings need another folder.
"""

import ast
import contextlib
import dataclasses
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckl_jax import checks, files
from ckl_jax.data import plugins
from ckl_jax.errors import UserError
from ckl_jax.options import Bindings
from ckl_jax.parallel import processes
from ckl_jax.train.subprocess_runs import SUMMARY, Training, as_gin, device_count, run_all

if TYPE_CHECKING:
    from ckl_jax.methods.method import Method

_UNTRIED = {"bindings", "snapshots"}  # settings that may change until there is a result
_LENGTHS = {"EPOCHS", "TRAIN_STEPS"}
_TASKS = ("MIXTURE_OR_TASK_NAME", "REPLAY_TASK_NAME", "REVIEW_TASK_NAME")
_FREE = {"out", "jobs"}  # settings that may always change


@dataclasses.dataclass(frozen=True, kw_only=True)
class StudySettings:
    """The settings of every study.

    Attributes:
      out: Folder of everything.
      seed: Random seed for the simulated world, parameter initialisation and data order.
      jobs: Processes that run at once; 0 is three for two cores, or one for each GPU. Each of
        several has one thread, or its share of the GPUs; one alone has all. The number of threads
        changes rounding, and so the scores of small models.
      bindings: Gin bindings for every training, such as "EPOCHS = 2".
    """

    out: str
    seed: int = 0
    jobs: int = 0
    bindings: Bindings = ()

    def __post_init__(self) -> None:
        checks.require_int(0, **{"--seed": self.seed, "--jobs": self.jobs})
        files.refuse_address(self.out)

    def _set(self, **values: Any) -> None:
        """Normalises values, such as "all", before anything reads them."""
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def root(self) -> Path:
        return Path(self.out)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Experiments:
    """A paper's tables and figures, for `ckl experiment`.

    Attributes:
      titles: {name: what it shows}, such as "ckl/table3".
      settings: class of the command's options.
      module: has `run(name, settings, progress)`, which returns the path of what it wrote, and
        `describe(name, settings)`, which returns sentences on what `run` would do.
    """

    titles: Mapping[str, str]
    settings: type[StudySettings]
    module: str


class Study:
    """The folder of a study while this process fills it; see `open_study`."""

    def __init__(self, settings: StudySettings, environment: Mapping[str, str]):
        self._jobs, self._environment = settings.jobs, environment
        self._steps, self._began = 0, time.monotonic()

    def step(self, title: str) -> None:
        """Prints the title of the next step, with its number."""
        self._steps += 1
        print(f"{self._steps}. {title}", flush=True)

    def run(self, trainings: Sequence[Training]) -> None:
        """Runs the trainings that are not complete; see `subprocess_runs.run_all`."""
        run_all(trainings, self._jobs, self._environment)

    def done(self, report: Path) -> Path:
        """Prints the duration of the study; returns the path of its report."""
        print(f"Done in {time.monotonic() - self._began:.0f} s: {report}", flush=True)
        return report


def _never(name: str, before: Any, now: Any) -> bool:
    return False


@contextlib.contextmanager
def open_study(settings: StudySettings, record: str, what: str, **allowed: Any) -> Iterator[Study]:
    """Context manager that creates and locks the folder of a study.

    The settings are kept in the folder; a new one goes again if the block refuses what it is given
    before it has made anything. On a CPU, trainings use what others compiled, until the block ends.

    Args:
      settings, record, what, **allowed: as for `check_record`.

    Raises:
      UserError: the folder is being filled, or holds results of other settings or other files.
    """
    own = {settings.root / name for name in (record, processes.LOCK)}
    if is_new := not any(path.exists() for path in own):
        files.refuse_existing(settings.root, None)
    with files.parents_of(settings.root / record), processes.FolderLock() as lock:
        lock.acquire(settings.root, "filled", "--out")
        files.write_json(settings.root / record, check_record(settings, record, what, **allowed))
        try:
            with tempfile.TemporaryDirectory(prefix="ckl_compiled_") as folder:
                yield Study(settings, {processes.COMPILED_FOR_THIS_CPU: folder})
        except UserError:
            if is_new and set(settings.root.iterdir()) <= own:
                for path in own:
                    path.unlink()
            raise


def check_record(
    settings: StudySettings,
    record: str,
    what: str,
    *,
    free: Collection[str] = (),
    replaced: Mapping[str, Any] | None = None,
    may_become: Callable[[str, Any, Any], bool] = _never,
) -> dict[str, Any]:
    """Refuses a folder with results of other settings.

    All may change as long as nothing was made, and bindings as long as there are no results: some
    values fail only in a training. So may snapshots, of which one may turn out to be damaged.

    Args:
      settings: of the study.
      record: name of the file that keeps them.
      what: is in the folder, for the message: "demo".
      free: names of further settings that may change.
      replaced: what is kept in place of some settings, or in addition.
      may_become: (name, before, now): whether a setting may change so, beside the results there
        are.

    Returns:
      What the folder keeps of the settings.

    Raises:
      UserError: a setting differs.
    """
    kept = {k: v for k, v in dataclasses.asdict(settings).items() if k not in {*_FREE, *free}}
    path, settings = settings.root / record, files.as_json({**kept, **(replaced or {})})
    if path.exists():
        before = files.read_json_object(path)
        different = [
            k
            for k in settings
            if settings[k] != before.get(k) and not may_become(k, before.get(k), settings[k])
        ]
        made = {p.name for p in path.parent.iterdir()} - {record, processes.LOCK}
        if not made or (set(different) <= _UNTRIED and not any(path.parent.rglob("checkpoint_*"))):
            different = []
        if different:
            name = min(different, key=_UNTRIED.__contains__)  # which no other state would pardon
            says = _difference(name, before.get(name), settings[name])
            raise UserError(f"{path.parent} holds a {what} {says}.")
    return settings


def _difference(name: str, then: Any, now: Any) -> str:
    """Says that a folder's results are of another setting, and what to do."""
    if isinstance(then, list) and isinstance(now, list):  # of long ones, where they differ
        parts = [x for x in then if x not in now], [x for x in now if x not in then]
        then, now = parts if any(parts) else (then, now)
    if then == []:
        return f"without the {name} {now!r}; leave them out, or choose another --out"
    other = f"other {name}" if name.endswith("s") else f"another {name}"
    return f"with {other} ({then!r}, not {now!r}); choose another --out or remove that folder"


# --- gin bindings


def refuse_own(bindings: Sequence[str], macros: Iterable[str]) -> None:
    """Refuses malformed bindings, bindings that the command sets itself, and lengths of no
    training.

    Args:
      bindings: the user's, such as "EPOCHS = 2".
      macros: that the command sets in addition to MODEL_DIR.

    Raises:
      UserError: one of them is bound, a binding is none, or EPOCHS, say, is below 1.
    """
    for name, equals, value in (map(str.strip, b.partition("=")) for b in bindings):
        if not equals:
            raise UserError(f"--gin {name!r} is not a binding; give NAME=VALUE, such as EPOCHS=2.")
        if name in {"MODEL_DIR", *macros}:
            raise UserError(
                f"--gin.{name}: the command sets it itself, for each training or by its own flags "
                "(see --help); leave it out."
            )
        if name in _LENGTHS:
            with contextlib.suppress(ValueError, SyntaxError):  # of what gin will refuse
                checks.require_int(1, **{f"--gin.{name}": ast.literal_eval(value)})


def check_trainings(trainings: Iterable[Training], bindings: Sequence[str]) -> None:
    """Refuses, before the first training, what only a later one would, or the report.

    Args:
      trainings: whose probes are reported.
      bindings: the user's, which are among those of the trainings.

    Raises:
      UserError: a binding binds nothing or leaves out the probes, or see `check_settings`.
    """
    for binding in bindings:
        if binding.replace(" ", "") == "PROBES=None":
            raise UserError("--gin.PROBES=None: what is reported are their scores; leave it out.")
    for training in trainings:
        if training.trains:
            check_settings(*training.gin())
        else:
            settings_of(training)  # refuses what binds nothing


def settings_of(training: Training) -> dict[str, Any]:
    """{name: value} of the macros and parameters that a training's command sets."""
    return _values(*training.gin())


def changed_settings(training: Training) -> list[str]:
    """The names that a training's gin files give other values now than it recorded when it began,
    and the modules of the user's that have changed since; [] of one without a checkpoint.
    """
    from ckl_jax.checkpoints import restore  # slow
    from ckl_jax.config import gin_config

    if (ended := training.folder / SUMMARY).exists():
        record = files.read_json_object(ended)
    elif restore.complete_steps(training.folder):
        record = restore.read_json_item(restore.find_checkpoint(training.folder), "metadata")
    else:
        return []
    now = settings_of(training)
    recorded = gin_config.read([str(training.folder / "config.gin")], trusted=("all",))
    then = {b.name: b.value for b in recorded.scan.bindings}
    names, statements = training.gin()
    of_study = {s.split("=")[0].strip() for s in {*statements} - {*own_macros(names[0])}}
    names = sorted((now.keys() | then.keys()) - of_study)
    modules = [
        path
        for path, digest in record.get("modules", {}).items()
        if not Path(path).is_file() or files.sha256(path) != digest
    ]
    return [*(name for name in names if now.get(name) != then.get(name)), *modules]


def check_settings(gin_files: Sequence[str], statements: Sequence[str]) -> None:
    """Refuses gin files and statements that `t5x train` would refuse before it reads anything.

    Raises:
      UserError: a name or value is wrong, or settings cannot work together.
    """
    from ckl_jax.parallel import mesh  # slow
    from ckl_jax.train import train

    shape = _values(gin_files, statements).get("MESH_SHAPE")
    if isinstance(shape, (dict, tuple, list)):  # no reference to another macro
        mesh.mesh_sizes(shape, device_count())
    _call(train.check, gin_files, statements)


def method_of(training: Training) -> "Method":
    """The method that the gin files of a `t5x train` bind, which may be a user's own."""
    from ckl_jax.methods.method import vanilla  # slow

    return _call(lambda **given: given.get("method"), *training.gin()) or vanilla()


def _call(function: Callable[..., Any], gin_files: Sequence[str], statements: Sequence[str]) -> Any:
    """Calls a function with the arguments that gin binds to `train.train`."""
    from ckl_jax.config import gin_config, gin_scan  # slow
    from ckl_jax.parallel import topology
    from ckl_jax.train import train

    values = _values(gin_files, statements)
    # Gin would make rows here, of data that may not be there yet.
    made = [name for name in _TASKS if isinstance(values.get(name), gin_scan.Reference)]
    # Devices that this process took would be missing to the trainings.
    with topology.without_devices():
        return gin_config.run_job(
            train.train,
            files=gin_files,
            bindings=[*statements, *(f"{name} = 'made'" for name in made)],
            instead=function,
            overrides=["VOCABULARY = None"],
        )


def gin_statements(macros: Mapping[str, Any], bindings: Sequence[str] = ()) -> list[str]:
    """The macros of a training and the user's bindings as lines of a gin file."""
    macros = {"MODEL_DIR": "", **macros}
    return [*(f"{name} = {as_gin(value)!r}" for name, value in macros.items()), *bindings]


def own_macros(method_file: str, but: Collection[str] = ()) -> list[str]:
    """What the user's gin file of a method sets, as statements that hold over later gin files.

    A study puts the files of its data, of a size or of an imported model after that of the method,
    whose includes would undo them.

    Args:
      but: macros that are left out; MODEL_DIR is, too.

    Returns:
      `NAME = value` of the macros set outside the bundled files, where a value needs no import.
    """
    from ckl_jax.config import gin_files, gin_scan  # slow

    folders = gin_files.search_folders((), [method_file])
    scan = gin_scan.scan([gin_files.find(method_file, folders)], (), folders)
    own = (b for b in scan.macros().values() if not b.is_bundled)
    return [
        f"{b.name} = {b.value!r}"
        for b in own
        if b.name not in {"MODEL_DIR", *but}
        and not any(gin_scan.parts_of(b.value, gin_scan.Reference))
    ]


def gin_values(
    gin_files: Sequence[str], macros: Mapping[str, Any], bindings: Sequence[str] = ()
) -> dict[str, Any]:
    """{name: value} of the macros and parameters that gin files, macros and bindings set.

    Values are those that hold in the end: macros in them are replaced by theirs.

    Raises:
      UserError: a file is missing, or a binding binds nothing.
    """
    from ckl_jax.config import gin_scan  # slow

    values = _values(gin_files, gin_statements(macros, bindings))
    return {name: gin_scan.resolved(value, values) for name, value in values.items()}


def _values(gin_files: Sequence[str], statements: Sequence[str]) -> dict[str, Any]:
    from ckl_jax.config import gin_config  # slow

    plugins.import_from_here()  # as the trainings will
    return {b.name: b.value for b in gin_config.read(gin_files, statements).scan.bindings}
