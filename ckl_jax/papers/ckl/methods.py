"""The methods that `ckl demo` and `ckl experiment` compare, and how `--methods` names them."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from ckl_jax import checks
from ckl_jax.analysis import labels
from ckl_jax.config import gin_files
from ckl_jax.errors import UserError
from ckl_jax.train import studies
from ckl_jax.train.subprocess_runs import Training

PAPER = ("vanilla", "recadam", "mix_review", "lora", "k_adapter_k2", "k_adapter_k3", "modular")
NEWER = ("replay", "lora_mix_review", "ewc", "lwf", "ema")  # only run if --methods names them
METHODS = PAPER + NEWER
_WORDS = {"all": PAPER, "newer": NEWER}


@dataclasses.dataclass(frozen=True)
class Strength:
    """The hyperparameter that controls how strongly a method preserves old knowledge."""

    name: str  # in tables
    binding: str  # of gin
    # that `ckl/pareto --strengths` tries beside the one in the method's gin file
    values: tuple[float, ...]


STRENGTHS = {
    "recadam": Strength("gamma", "recadam.recadam.gamma", (500.0, 50000.0)),  # 5,000
    "mix_review": Strength("ratio", "mix_review.mix_review.ratio", (1.0, 2.0)),  # 4
    "lora": Strength("rank", "lora.lora.rank", (1, 16)),  # 4
    "replay": Strength("fraction", "replay.replay.fraction", (0.2, 0.5)),  # 0.05
    "lora_mix_review": Strength("ratio", "mix_review.mix_review.ratio", (1.0, 2.0)),  # 4
    "ewc": Strength("strength", "EWC_STRENGTH", (1.0, 100.0)),  # 10
    "lwf": Strength("weight", "LWF_WEIGHT", (0.25, 4.0)),  # 1
    "ema": Strength("decay", "EMA_DECAY", (0.9, 0.995)),  # 0.98 of the simulated world
}


def expand(names: Sequence[str]) -> tuple[str, ...]:
    """The methods that `--methods` names: "all" stands for the paper's, "newer" for the others.

    A name is that of a bundled file `methods/NAME.gin`, or the path of a gin file of one's own.

    Raises:
      UserError: a name is no method's, there is no such file, or two would share a folder.
    """
    named = list(dict.fromkeys(name for word in names for name in _WORDS.get(word, (word,))))
    own = list(filter(is_own, named))
    every = (*METHODS, *gin_files.bundled_methods())
    for name in own:
        gin_files.find(name, gin_files.search_folders((), [name]))
    checks.require_names(dict.fromkeys((*every, *own)), **{"--methods": tuple(named)})
    for i, name in enumerate(own):
        if folder(name) in (*every, *map(folder, own[:i])):
            raise UserError(f"--methods: {name!r} has the name of another method; rename the file.")
    return tuple(named)


def in_order(names: Sequence[str]) -> list[str]:
    """Methods in the order of the tables; one's own come last."""
    return sorted(dict.fromkeys(names), key=labels.order)


def is_own(method: str) -> bool:
    """Whether it is the path of a user's gin file."""
    return method.endswith(".gin")


def folder(method: str) -> str:
    """The name of a method's run: my_lora of ckl_my_lora.gin."""
    return labels.method_key(Path(method).stem) if is_own(method) else method


def check_own(methods: Sequence[str], trainings: Sequence[Training]) -> None:
    """Raises `UserError` for users' gin files whose trainings could not start, or are of others."""
    for method in filter(is_own, methods):
        own = [t for t in trainings if f"--gin_file={method}" in t.command]
        try:
            studies.check_trainings([t for t in own if not t.is_done][:1], ())
        except UserError as e:
            raise UserError(
                f"--methods {method}: {e} Such a file includes 'jobs/ckl_train.gin' and "
                "'data/ckl_world.gin' and binds METHOD (docs/methods/README.md)."
            ) from e
        for training in own:
            if changed := studies.changed_settings(training):
                raise UserError(
                    f"--methods {method}: {training.folder} was trained with another "
                    f"{changed[0]}; remove that folder, or rename the gin file."
                )


def job_files(method: str) -> tuple[str, ...]:
    """The gin files that train by a method on the simulated world."""
    if is_own(method):
        return (method,)
    return ("jobs/ckl_train.gin", f"methods/{method}.gin", "data/ckl_world.gin")
