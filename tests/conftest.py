"""Settings of the whole suite. They must precede the first import of jax."""

import functools
import importlib
import os

import pytest

# Toy models compile for longer than they run: compile fast instead of well.
_FAST_COMPILE = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
# Everything runs over a mesh of eight devices, unless it asks for less.
_DEVICES = "--xla_force_host_platform_device_count=8"
_FLAGS = (os.environ.get("XLA_FLAGS", ""), _FAST_COMPILE, _DEVICES)
os.environ["XLA_FLAGS"] = " ".join(_FLAGS).strip()
os.environ.setdefault("JAX_PLATFORMS", "cpu")

# Functions of dependencies that promote dtypes: they run under JAX's default rules.
_PROMOTING = [("optax", "apply_updates"), ("optax.tree", "bias_correction")]


def _promoting(function):
    @functools.wraps(function)
    def call(*args, **kwargs):
        import jax

        with jax.numpy_dtype_promotion("standard"):
            return function(*args, **kwargs)

    return call


@pytest.fixture(scope="session", autouse=True)
def strict():
    """Nothing is promoted in silence: neither dtypes nor ranks."""
    import jax

    for name, function in _PROMOTING:
        module = importlib.import_module(name)
        setattr(module, function, _promoting(getattr(module, function)))
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture
def one_device_each(monkeypatch):
    """Gives every process that a test starts one device, on which any batch size trains."""
    monkeypatch.setenv("XLA_FLAGS", _FAST_COMPILE)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """A tiny world with its Initial model, made once; see `tests.tiny.Tiny`."""
    from tests.tiny import Tiny

    return Tiny.make(tmp_path_factory.mktemp("tiny"))
