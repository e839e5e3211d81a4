"""T5X's model files: each gives the model that its name says."""

import json
import subprocess
import sys

import pytest

from ckl_jax.config import gin_files

# Numbers of parameters of the published checkpoints (Hugging Face's google/mt5-*, google/byt5-*).
PUBLISHED = {
    "mt5/small": 300_176_768,
    "mt5/base": 582_401_280,
    "mt5/large": 1_229_581_312,
    "byt5/small": 299_637_760,
    "byt5/base": 581_653_248,
}
# In a process of its own, as gin never forgets a class: SeqIO takes many seconds to import, and no
# vocabulary is read here.
SCRIPT = """
import json, sys, types
seqio = sys.modules["seqio"] = types.ModuleType("seqio")
for name in ("SentencePieceVocabulary", "ByteVocabulary"):
    setattr(seqio, name, type(name, (), {"__module__": "seqio"}))
from ckl_jax.cli import t5x
for model, *more in json.loads(sys.argv[1]):
    assert 0 == t5x.main([
        "precompile", f"--gin_file=t5x/examples/t5/{model}.gin",
        "--gin_file=t5x/configs/runs/precompile.gin", "--gin.MIXTURE_OR_TASK_NAME='none'",
        "--gin.TASK_FEATURE_LENGTHS={'inputs': 8, 'targets': 8}", "--gin.DROPOUT_RATE=0.0",
        "--gin.BATCH_SIZE=8", *more,
    ])
    print("END", flush=True)
"""


@pytest.mark.slow
def test_the_models_of_t5x_are_the_published_ones_and_its_precompile_file_runs():
    count = "--gin.train_script.precompile.compile=False"
    calls = [[model, count] for model in PUBLISHED] + [["t5_1_1/tiny"]]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(calls)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    *reports, compiled, _ = done.stdout.split("END\n")
    for parameters, report in zip(PUBLISHED.values(), reports, strict=True):
        assert f"{parameters:,}" in report
    assert "FLOP" in compiled


def test_all_of_t5xs_model_files_are_there():
    have = {f.removeprefix("t5x/examples/t5/") for f in gin_files.bundled_files()}
    sizes = ("tiny", "small", "base", "large")
    for family, more in {
        "t5_1_0": ("3B", "11B"),
        "t5_1_1": ("xl", "xxl"),
        "mt5": ("xl", "xxl"),
        "byt5": ("xl", "xxl"),
    }.items():
        assert {f"{family}/{size}.gin" for size in (*sizes, *more)} <= have
