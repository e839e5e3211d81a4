"""Continual knowledge learning in JAX: update a language model, and measure what it kept,
updated, learned and forgot. `api` has what is offered here."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from ckl_jax.api import Model, Run, Update, Updates, compare, load, plot, update
    from ckl_jax.errors import UserError

__all__ = ["Model", "Run", "Update", "Updates", "UserError", "compare", "load", "plot", "update"]


def __getattr__(name: str) -> Any:
    # On first use, so that the command line and jobs import nothing that they do not need.
    if name in __all__:
        from ckl_jax import api

        return getattr(api, name)
    raise AttributeError(f"module 'ckl_jax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
