"""Settings of the whole suite. They must precede the first import of jax."""

import os

import pytest

# Toy models compile for longer than they run: compile fast instead of well.
_FAST_COMPILE = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_FAST_COMPILE}".strip()
os.environ.setdefault("JAX_PLATFORMS", "cpu")


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """A tiny world with its Initial model, made once; see `tests.tiny.Tiny`."""
    from tests.tiny import Tiny

    return Tiny.make(tmp_path_factory.mktemp("tiny"))
