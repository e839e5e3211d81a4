"""Continual knowledge learning in JAX: update a language model, and measure what it kept,
updated, learned and forgot. `api` and `jobs` have what is offered here."""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

# ruff: noqa: I001
if TYPE_CHECKING:  # `as` says that others may import it from here
    from ckl_jax.api import Intervals as Intervals, Model as Model, Plots as Plots, Run as Run
    from ckl_jax.api import Staleness as Staleness, Update as Update, Updates as Updates
    from ckl_jax.api import compare as compare, compare_seeds as compare_seeds, load as load
    from ckl_jax.cli.ckl import command as command
    from ckl_jax.data.facts.relational import Dataset as Dataset
    from ckl_jax.errors import UserError as UserError
    from ckl_jax.jobs import diffsets as diffsets, probe as probe, splits as splits
    from ckl_jax.jobs import staleness as staleness, train as train, update as update
    from ckl_jax.papers.lm_pub_quiz.ranking import Evaluator as Evaluator
    from ckl_jax.papers.lm_pub_quiz.ranking_results import DatasetResults as DatasetResults
    from ckl_jax.papers.lm_pub_quiz.trainer_callback import PubQuizCallback as PubQuizCallback

_PLACES = {
    "Dataset": "data.facts.relational",
    "DatasetResults": "papers.lm_pub_quiz.ranking_results",
    "Evaluator": "papers.lm_pub_quiz.ranking",
    "PubQuizCallback": "papers.lm_pub_quiz.trainer_callback",
    "UserError": "errors",
    "command": "cli.ckl",
    **dict.fromkeys(("Intervals", "Model", "Plots", "Run", "Staleness", "Update"), "api"),
    **dict.fromkeys(("Updates", "compare", "compare_seeds", "load"), "api"),
    **dict.fromkeys(("diffsets", "probe", "splits", "staleness", "train", "update"), "jobs"),
}
__all__ = sorted(_PLACES)


def _import(name: str) -> Any:
    # On first use, so that the command line and jobs import nothing that they do not need.
    if name in _PLACES:
        return getattr(importlib.import_module(f"ckl_jax.{_PLACES[name]}"), name)
    raise AttributeError(f"module 'ckl_jax' has no attribute {name!r}")


if not TYPE_CHECKING:  # a type checker would take it for a promise of any name
    __getattr__ = _import


def __dir__() -> list[str]:
    return sorted([*(name for name in globals() if name.startswith("__")), *__all__])
