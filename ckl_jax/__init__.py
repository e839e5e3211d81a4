"""Continual knowledge learning in JAX: update a language model, and measure what it kept,
updated, learned and forgot. `api` and `jobs` have what is offered here."""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

# ruff: noqa: F401, I001
if TYPE_CHECKING:
    from ckl_jax.api import Intervals, Model, Plots, Run, Staleness, Update, Updates, compare
    from ckl_jax.api import compare_seeds, load
    from ckl_jax.cli.ckl import command
    from ckl_jax.data.facts.relational import Dataset
    from ckl_jax.errors import UserError
    from ckl_jax.jobs import diffsets, probe, splits, staleness, train, update
    from ckl_jax.papers.lm_pub_quiz.ranking import Evaluator
    from ckl_jax.papers.lm_pub_quiz.ranking_results import DatasetResults
    from ckl_jax.papers.lm_pub_quiz.trainer_callback import PubQuizCallback

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


def __getattr__(name: str) -> Any:
    # On first use, so that the command line and jobs import nothing that they do not need.
    if name in _PLACES:
        return getattr(importlib.import_module(f"ckl_jax.{_PLACES[name]}"), name)
    raise AttributeError(f"module 'ckl_jax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*(name for name in globals() if name.startswith("__")), *__all__])
