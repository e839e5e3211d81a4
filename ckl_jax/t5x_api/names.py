"""Provides `t5x.<name>` in a native run, whether or not T5X itself is installed.

No top-level package `t5x` is shipped: it would overwrite T5X's own files. A finder that comes first
puts this room's own module objects under T5X's names, so each class has one identity, and a
`config.gin` written here still says `from t5x import ...`.
"""

import importlib
import importlib.abc
import sys
import types
from importlib.machinery import ModuleSpec
from pathlib import Path

from ckl_jax import checks
from ckl_jax.config import gin_config, gin_scan
from ckl_jax.errors import UserError, nearest

_HERE = "ckl_jax.t5x_api"
# What `from t5x import <name>` and `from t5x.<package> import <name>` give; None is a package.
MODULES: dict[str, str | None] = {
    "t5x": None,
    "t5x.examples": None,
    "t5x.examples.t5": None,
    "t5x.adafactor": f"{_HERE}.adafactor",
    "t5x.checkpoints": f"{_HERE}.checkpoints",
    "t5x.decoding": f"{_HERE}.decoding",
    "t5x.eval": f"{_HERE}.eval",
    "t5x.examples.t5.network": f"{_HERE}.models",
    "t5x.gin_utils": f"{_HERE}.utils",
    "t5x.infer": f"{_HERE}.infer",
    "t5x.losses": f"{_HERE}.models",
    "t5x.models": f"{_HERE}.models",
    "t5x.optimizers": f"{_HERE}.optimizers",
    "t5x.partitioning": f"{_HERE}.partitioning",
    "t5x.train": f"{_HERE}.train",
    "t5x.trainer": f"{_HERE}.trainer",
    "t5x.utils": f"{_HERE}.utils",
}
_WHOLE_NUMBERS = ("total_steps", "relative_steps", "eval_steps", "eval_period", "batch_size")


class _Loader(importlib.abc.Loader):
    def create_module(self, spec: ModuleSpec) -> None:
        return None  # the default: a new module, which stays if the name is a package

    def exec_module(self, module: types.ModuleType) -> None:
        target = MODULES[module.__name__]
        if target is not None:
            # What is in sys.modules after this counts; its own __spec__ stays as it is.
            sys.modules[module.__name__] = importlib.import_module(target)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, path=None, target=None) -> ModuleSpec | None:
        # None leaves the name to Python's other finders.
        if name.split(".")[0] != "t5x":
            return None
        # An error rather than None, which would end in Python's "No module named" or in an
        # installed T5X.
        if name not in MODULES:
            raise UserError(
                f"{name} is not offered by the native runner; use --runner=upstream."
                + nearest(name, MODULES)
            )
        # A package of an empty path: Python cannot load a second copy of a module from it.
        return ModuleSpec(name, _Loader(), is_package=MODULES[name] is None)


_finder = _Finder()


def install() -> None:
    """Makes `import t5x` refer to this package until `uninstall`.

    Raises:
      UserError: T5X itself is imported already.
    """
    if _finder in sys.meta_path:
        return
    if "t5x" in sys.modules:
        where = getattr(sys.modules["t5x"], "__file__", None) or "another place"
        raise UserError(
            f"T5X itself is imported already (from {where}); a native run of its gin files needs "
            "a process of its own, or --runner=upstream."
        )
    # First, so that an installed T5X is not found.
    sys.meta_path.insert(0, _finder)


def prepare(mode: str, scan: gin_scan.Scan) -> None:
    """`install` for a mode of `t5x`, after checks that wait for none of the slow imports.

    Raises:
      UserError: the run file is missing, or a value of the job or of a record cannot be.
    """
    jobs = {"eval": "evaluate", "precompile": "train precompile"}.get(mode, mode).split()
    if not any(selector.rpartition(".")[2] in jobs for selector in scan.selectors()):
        raise UserError(
            f"The gin files set nothing of {jobs[0]}(): include a run file, such as 't5x/configs/"
            f"runs/{'finetune' if mode == 'train' else mode}.gin', above the macros that you set."
        )
    macros = scan.macros()
    for b in {b.name: b for b in scan.bindings}.values():
        name, value = b.name, b.value
        if isinstance(value, gin_scan.Macro):
            name, value = value.name, getattr(macros.get(value.name), "value", None)
        if value is None or isinstance(value, (gin_scan.Macro, gin_scan.Reference)):
            continue
        if b.parameter in _WHOLE_NUMBERS:
            checks.require_int(0, **{name: value})
        elif b.parameter == "task_feature_lengths":
            checks.require_lengths(value, name)
        elif b.name.endswith("RestoreCheckpointConfig.path") and mode != "precompile":
            if isinstance(value, str) and not (":/" in value or Path(value).expanduser().is_dir()):
                raise UserError(f"{name}: there is no folder {value}; give that of a checkpoint.")
    install()


def uninstall() -> None:
    """Removes the modules that `install` registered."""
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
        for name in MODULES:
            # A later `import t5x` in this process finds T5X itself, if it is installed.
            sys.modules.pop(name, None)
        # gin remembers which module a name was registered from.
        gin_config.forget("t5x")


def not_offered(module: str, **given: object) -> None:
    """Raises `UserError` if an argument of T5X that has no counterpart is set."""
    for name, value in given.items():
        # T5X's defaults of what is not offered are None or False; run files may bind them
        # explicitly.
        if value not in (None, False):
            raise UserError(
                f"t5x.{module}: {name} is not offered by the native runner; leave it out, or use "
                "--runner=upstream."
            )
