import os

import jax
import pytest

from ckl_jax.train import compile_cache


@pytest.fixture
def undo(monkeypatch, tmp_path):
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    before = {name: getattr(jax.config, name) for name in names}
    yield
    for name, value in before.items():
        jax.config.update(name, value)


def test_cpus_get_no_cache_unless_asked(undo, monkeypatch, tmp_path):
    assert compile_cache.enable() is None
    monkeypatch.setenv("CKL_COMPILED_FOR_THIS_CPU", str(tmp_path / "ours"))
    assert compile_cache.enable() == str(tmp_path / "ours")
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "ours")
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "mine"))
    assert compile_cache.enable() == str(tmp_path / "mine")


def test_accelerators_get_one_unless_refused(undo, monkeypatch, tmp_path):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert compile_cache.enable() == str(tmp_path / "ckl_jax" / "compiled")
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "ckl_jax" / "compiled")
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "")
    assert compile_cache.enable() is None


@pytest.mark.slow
def test_a_restart_reads_what_was_compiled(tiny, tmp_path):
    cache = tmp_path / "cache"
    env = {"JAX_COMPILATION_CACHE_DIR": str(cache)}
    argv = ["train", *tiny.argv("vanilla", tmp_path / "run", PROBES=None, EPOCHS=1)]
    assert tiny.start(argv, tmp_path / "log", env).wait() == 0, (tmp_path / "log").read_text()
    first = {p.name for p in cache.iterdir() if p.name.endswith("-cache")}
    assert any(name.startswith("jit_step") for name in first)
    argv = ["train", *tiny.argv("vanilla", tmp_path / "again", PROBES=None, EPOCHS=1)]
    assert tiny.start(argv, tmp_path / "log", env).wait() == 0, (tmp_path / "log").read_text()
    assert {p.name for p in cache.iterdir() if p.name.endswith("-cache")} == first
    assert os.path.exists(tmp_path / "again" / "summary.json")
