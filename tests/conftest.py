"""Settings of the whole suite. They must precede the first import of jax."""

import fcntl
import functools
import gc
import importlib
import os
import signal
import sys

import pytest

from tests.xla_flags import xla_flags

# Everything runs over a mesh of eight devices, unless it asks for less.
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {xla_flags(devices=8)}".strip()
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["HF_HUB_OFFLINE"] = "1"  # no test asks the network

# Processes that tests start are as strict: what pytest and `strict` set is for this one alone.
os.environ["JAX_NUMPY_DTYPE_PROMOTION"] = "strict"
os.environ["JAX_NUMPY_RANK_PROMOTION"] = "raise"
# Later ones come first. PYTHONWARNINGS takes no patterns: messages are compared from their start.
os.environ["PYTHONWARNINGS"] = ",".join(
    ("error", "ignore::ResourceWarning", "ignore:Sharding info not provided:UserWarning")
)

# A shell's background jobs ignore Ctrl-C, and so would the commands that tests start and stop.
signal.signal(signal.SIGINT, signal.default_int_handler)

# JAX frees its own garbage in each collection, so that frequent ones take a tenth of the suite.
gc.set_threshold(100_000, 50, 100)

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


@pytest.fixture(scope="module", autouse=True)
def compiled_programs():
    """Dropped after each module: they would fill several GB, and no other module uses them."""
    yield
    if jax := sys.modules.get("jax"):
        jax.clear_caches()


@pytest.fixture
def one_device_each(monkeypatch):
    """Gives every process that a test starts one device, on which any batch size trains."""
    monkeypatch.setenv("XLA_FLAGS", xla_flags(devices=1))


@pytest.fixture
def in_this_process(monkeypatch):
    """Trainings that a command starts run in the test's process, which has imported all of it."""
    from tests.tiny import train_here

    train_here(monkeypatch)


@pytest.fixture(name="undrawn")
def undrawn_figures():
    """For tests that read what a report has besides its figures."""
    from tests.analysis.helpers import undrawn

    with undrawn():
        yield


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """A tiny world with its Initial model, made once for all workers; see `tests.tiny.Tiny`."""
    from tests.tiny import Tiny

    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    made = root / "tiny" / "made"
    with open(root / "tiny.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            Tiny.make(made.parent)
            made.touch()
    return Tiny(made.parent)


@pytest.fixture
def heard():
    """SIGHUP acts as in a terminal, also where the tests run under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)
