import subprocess
import sys

_SCRIPT = """
import importlib, pkgutil, sys
import ckl_jax.data, ckl_jax.world
for package in (ckl_jax.data, ckl_jax.world):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
heavy = {"jax", "flax", "tensorflow", "seqio", "grain", "spacy", "pandas", "sentencepiece"}
print(sorted(heavy & set(sys.modules)))
"""


def test_data_and_world_import_nothing_heavy():
    done = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
