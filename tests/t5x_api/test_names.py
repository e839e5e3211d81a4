"""T5X's names: found, unique, and refused by name where they are not offered."""

import importlib
import inspect
import json
import subprocess
import sys
import types

import gin
import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

from ckl_jax.checkpoints.restore import complete_steps
from ckl_jax.checkpoints.store import CheckpointStore
from ckl_jax.cli import t5x
from ckl_jax.config import gin_config, gin_files
from ckl_jax.errors import UserError
from ckl_jax.parallel import mesh
from ckl_jax.t5x_api import names, seqio_data
from ckl_jax.trees import keys


@pytest.fixture(autouse=True)
def forget():
    yield
    names.uninstall()


def test_each_name_is_the_module_of_this_project():
    names.install()
    names.install()  # twice is once
    for name, target in names.MODULES.items():
        if target and not target.endswith("seqio_data"):
            assert importlib.import_module(name) is importlib.import_module(target)
            assert importlib.import_module(target).__spec__.name == target
    import t5x.examples.t5.network

    from ckl_jax.models.t5 import Transformer

    assert t5x.examples.t5.network.Transformer is Transformer


def test_a_binding_of_one_partitioner_is_not_the_others(tmp_path):
    names.install()
    from t5x import partitioning

    path = tmp_path / "a.gin"
    path.write_text(
        "from __gin__ import dynamic_registration\nfrom t5x import partitioning\n"
        "partitioning.PjitPartitioner.num_partitions = 1\n"
        "partitioning.ModelBasedPjitPartitioner.num_partitions = 2\n"
    )
    gin_config.load([str(path)])
    made = (partitioning.PjitPartitioner, partitioning.ModelBasedPjitPartitioner)
    assert [gin.get_configurable(cls)().num_partitions for cls in made] == [1, 2]


def test_what_is_not_offered_says_so():
    names.install()
    with pytest.raises(UserError, match="t5x.export is not offered.*--runner=upstream"):
        importlib.import_module("t5x.export")
    from t5x import models, optimizers, trainer, utils

    for call in (
        lambda: models.DecoderOnlyModel(module=None),
        lambda: optimizers.MultiOptimizer([]),
        lambda: trainer.Trainer(weight_metrics_computer=object()),
        lambda: utils.SaveCheckpointConfig(dtype="bfloat16"),
        lambda: utils.RestoreCheckpointConfig(checkpointer_cls=object()),
    ):
        with pytest.raises(UserError, match="not offered by the native runner"):
            call()


def test_a_search_shows_gin_the_arguments_of_t5x():
    names.install()
    from t5x import decoding

    arguments = inspect.signature(decoding.temperature_sample).parameters
    assert (arguments["topk"].default, arguments["num_decodes"].default) == (1, 1)
    assert "alpha" in inspect.signature(decoding.beam_search).parameters


def test_a_mesh_is_told_in_one_way():
    names.install()
    from t5x import partitioning

    # T5X's run files bind num_partitions = 1.
    made = partitioning.PjitPartitioner(num_partitions=1, mesh_shape={"data": -1})
    assert made.mesh.shape["data"] == len(jax.devices())
    with pytest.raises(UserError, match="num_partitions and mesh_shape exclude each other"):
        partitioning.PjitPartitioner(num_partitions=2, mesh_shape={"data": -1})
    with pytest.raises(UserError, match="num_partitions is 'two'"):
        partitioning.PjitPartitioner(num_partitions="two")


def test_a_rule_that_is_no_regular_expression_is_refused():
    names.install()
    from t5x import utils

    with pytest.raises(UserError, match="is not a regular expression"):
        utils.RestoreCheckpointConfig(path=".", assignment_map=((r"target/(", "x"),))


def test_t5x_itself_is_left_alone(monkeypatch):
    monkeypatch.setitem(sys.modules, "t5x", types.ModuleType("t5x"))
    with pytest.raises(UserError, match="T5X itself is imported already"):
        names.install()


MODEL = """
from __gin__ import dynamic_registration
{imports}
from ckl_jax.data.text import vocabularies
from t5x import adafactor
from t5x import models
from t5x import utils
from t5x.examples.t5 import network

include 't5x/configs/runs/pretrain.gin'

DROPOUT_RATE = 0.0
VOCABULARY = @vocabularies.Vocabulary()
vocabularies.Vocabulary:
    path = '{vocabulary}'
    extra_ids = 100
OPTIMIZER = @adafactor.Adafactor()
MODEL = @models.EncoderDecoderModel()
models.EncoderDecoderModel:
    module = @network.Transformer()
    input_vocabulary = %VOCABULARY
    output_vocabulary = %VOCABULARY
    optimizer_def = %OPTIMIZER
network.Transformer.config = @network.T5Config()
network.T5Config:
    vocab_size = 1024
    emb_dim = 32
    num_heads = 2
    num_encoder_layers = 1
    num_decoder_layers = 1
    head_dim = 16
    mlp_dim = 64
    dropout_rate = %DROPOUT_RATE
TASK_FEATURE_LENGTHS = {{'inputs': 16, 'targets': 9}}
BATCH_SIZE = 32
train_script.train.progress = 'silent'
{more}
"""


@pytest.fixture
def gin_file(tiny, tmp_path):
    def write(imports="import __main__ as train_script", more=""):
        vocabulary = next((tiny.root / "world" / "prepared").rglob("*.model"))
        path = tmp_path / "mine.gin"
        path.write_text(MODEL.format(imports=imports, more=more, vocabulary=vocabulary))
        return f"--gin_file={path}"

    return write


def macros(tiny, tmp_path, steps, folder="run"):
    values = {
        "MODEL_DIR": str(tmp_path / folder),
        "MIXTURE_OR_TASK_NAME": str(tiny.tasks / "d1"),
        "TRAIN_STEPS": steps,
    }
    return [f"--gin.{name}={value!r}" for name, value in values.items()]


def test_a_stock_gin_file_trains_and_its_config_says_the_same(tiny, tmp_path, gin_file, capsys):
    argv = [gin_file(), *macros(tiny, tmp_path, 3)]
    assert t5x.main(["train", *argv]) == 0
    run = tmp_path / "run"
    assert complete_steps(run) == [0, 3]
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["step"] == 3
    assert {"learning_rate/current", "timing/compilation_seconds"} <= set(rows[-1])
    # The only row: of the three steps together, as T5X's without a stats_period.
    assert [row["step"] for row in rows] == [3]
    assert rows[0]["timing/seqs"] == 3 * 32
    assert rows[0]["effective_batch_size/encoder_input_tokens"] == 32
    seconds = rows[0]["timing/seconds"]
    assert rows[0]["timing/seconds_per_step"] == pytest.approx(seconds / 3)
    # 354 rows are 12 batches.
    assert json.loads((run / "summary.json").read_text())["epochs"] == round(3 / 12, 4)
    assert (run / "model-info.txt").is_file() and list((run / "train").glob("events.out.*"))
    told = CheckpointStore(str(run)).metadata(3)
    assert told["scan_layers"] is False and len(told["vocabulary_digest"]) == 64
    assert told["jax"] == jax.__version__ and {"flax", "optax", "orbax-checkpoint"} < set(told)
    config = (run / "config.gin").read_text()
    assert "import __main__ as train_script" in config and "from t5x import utils" in config
    assert "ckl_jax.t5x_api" not in config
    said = capsys.readouterr().out
    assert f"training_eval leaves out {tiny.tasks / 'd1'}: a cached task has no splits" in said
    assert t5x.main(["train", "--dry_run", f"--gin_file={run / 'config.gin'}"]) == 0
    assert capsys.readouterr().out.strip() == config.strip()
    assert t5x.main(["train", gin_file(more="DROPOUT_RATE = 0.1"), *macros(tiny, tmp_path, 3)]) == 0
    said = capsys.readouterr().out
    assert "already trained to step 3; nothing to do. It was trained with DROPOUT_RATE" in said
    assert "goes on" not in said
    (run / "summary.json").unlink()  # as if it had been interrupted
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert t5x.main(["train", gin_file(), *macros(tiny, tmp_path, 2)]) == 0
    said = capsys.readouterr().out
    assert f"{run} is at step 3 and this run ends at step 2: there is nothing to do" in said
    assert "goes on" not in said and "step 3/2" not in said
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_micro_batches_that_do_not_divide_over_the_mesh_are_refused(
    tiny, tmp_path, gin_file, capsys, monkeypatch
):
    monkeypatch.setattr(mesh.Partitioner, "batch_parts", property(lambda self: 2))
    more = "trainer.Trainer.num_microbatches = 32"
    argv = [gin_file("import __main__ as train_script\nfrom t5x import trainer", more)]
    assert t5x.main(["train", *argv, *macros(tiny, tmp_path, 3)]) == 2
    said = "BATCH_SIZE / NUM_MICROBATCHES = 1 does not divide into 2 parts"
    assert said in capsys.readouterr().err


@pytest.mark.slow
def test_steps_count_on_from_the_initial_checkpoint(tiny, tmp_path, gin_file, capsys):
    argv = [gin_file(), *macros(tiny, tmp_path, 3)]
    assert t5x.main(["train", *argv]) == 0
    start = f"--gin.utils.RestoreCheckpointConfig.path='{tmp_path / 'run' / 'checkpoint_3'}'"
    argv = [gin_file(), start]
    assert t5x.main(["train", *argv, *macros(tiny, tmp_path, 3, "no")]) == 2
    assert "TRAIN_STEPS is 3, but the checkpoint" in capsys.readouterr().err
    assert t5x.main(["train", *argv, *macros(tiny, tmp_path, 5, "on")]) == 0
    assert complete_steps(tmp_path / "on") == [3, 5]
    relative = "--gin.TRAIN_STEPS_RELATIVE=1"
    assert t5x.main(["train", *argv, relative, *macros(tiny, tmp_path, 5, "rel")]) == 0
    assert complete_steps(tmp_path / "rel") == [3, 4]


@pytest.mark.slow
def test_the_best_by_a_scalar_of_training_stay(tiny, tmp_path, gin_file):
    modules = ("import __main__ as train_script", "from t5x import checkpoints")
    imports = "\n".join((*modules, "from t5x import trainer"))
    more = """
utils.SaveCheckpointConfig:
    period = 1
    keep = 1
    checkpointer_cls = @checkpoints.SaveBestCheckpointer
checkpoints.SaveBestCheckpointer:
    metric_name_to_monitor = 'train/cross_ent_loss'
    keep_checkpoints_without_metrics = False
trainer.TerminateOnNanAction.task = 'd1'
train_script.train.actions = {'TRAIN_EVAL': [@trainer.TerminateOnNanAction()]}
"""
    assert t5x.main(["train", gin_file(imports, more), *macros(tiny, tmp_path, 4)]) == 0
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").open()]
    scores = {row["step"]: row["cross_ent_loss"] for row in rows}
    assert sorted(scores) == [1, 2, 3, 4]
    best = max((1, 2, 3), key=lambda step: scores[step])
    assert complete_steps(tmp_path / "run") == [best, 4]


def optimizer_state(path):
    state = ocp.PyTreeCheckpointHandler().restore(path / "state")
    return {n: x for n, x in keys.named_leaves(state) if not n.startswith("target/")}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Sharding info not provided")
def test_the_optimizer_goes_on_unless_a_rule_drops_it(tiny, tmp_path, gin_file):
    assert t5x.main(["train", gin_file(), *macros(tiny, tmp_path, 3)]) == 0
    start = f"--gin.utils.RestoreCheckpointConfig.path='{tmp_path / 'run' / 'checkpoint_3'}'"
    argv = ["train", gin_file(), start]
    assert t5x.main([*argv, *macros(tiny, tmp_path, 4, "on")]) == 0
    had, got = (optimizer_state(tmp_path / d / "checkpoint_3") for d in ("run", "on"))
    assert had.keys() == got.keys()
    for name, x in had.items():
        np.testing.assert_array_equal(x, got[name])
    rules = "--gin.utils.RestoreCheckpointConfig.assignment_map=[('state.*', None)]"
    scratch = "--gin.utils.RestoreCheckpointConfig.fallback_to_scratch=True"
    assert t5x.main([*argv, rules, scratch, *macros(tiny, tmp_path, 1, "new")]) == 0
    assert complete_steps(tmp_path / "new") == [0, 1]
    fresh = optimizer_state(tmp_path / "new" / "checkpoint_0")
    assert all(not np.any(x) for x in fresh.values())


@pytest.mark.slow
def test_a_method_goes_into_a_stock_gin_file(tiny, tmp_path, gin_file):
    imports = "import __main__ as train_script\nfrom ckl_jax.methods import lora"
    more = "train_script.train.method = @lora.lora()"
    argv = [gin_file(imports, more), *macros(tiny, tmp_path, 2)]
    assert t5x.main(["train", *argv]) == 0
    info = (tmp_path / "run" / "model-info.txt").read_text()
    assert "lora_0/a" in info and "Number of trainable parameters" in info


def test_precompile_reads_stock_gin_files(tiny, tmp_path, gin_file, capsys):
    # Its MODEL_DIR and TRAIN_STEPS are left open.
    argv = [gin_file(), "--gin.MIXTURE_OR_TASK_NAME='not there'"]
    # What T5X takes in place of a whole number, or of an empty list.
    argv.append("--gin.utils.create_learning_rate_scheduler.warmup_steps=1e4")
    argv.append("--gin.utils.SaveCheckpointConfig.checkpoint_steps=None")
    assert t5x.main(["precompile", *argv]) == 0
    assert "FLOP" in capsys.readouterr().out


MODEL_FILE = "--gin_file=t5x/examples/t5/t5_1_1/tiny.gin"


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (
            ["train", MODEL_FILE, "--gin.MODEL_DIR='x'"],
            "set nothing of train(): include a run file, such as 't5x/configs/runs/finetune.gin', "
            "above the macros that you set.",
        ),
        (
            ["eval", MODEL_FILE],
            "set nothing of evaluate(): include a run file, such as 't5x/con",
        ),
        (
            ["train", "--gin_file=t5x/configs/runs/pretrain.gin"],
            "MODEL is not set ({runs}/pretrain.gin, line 26 needs it); include a model's gin file, "
            "such as 't5x/examples/t5/t5_1_1/small.gin', or set",
        ),
        (
            [
                *("eval", MODEL_FILE, "--gin_file=t5x/configs/runs/eval.gin"),
                *("--gin.MIXTURE_OR_TASK_NAME='x'", "--gin.CHECKPOINT_PATH='.'"),
                "--gin.DROPOUT_RATE=0.1",
            ],
            "or set it in a gin file. It takes: 'folder'.",
        ),
        (
            ["train", MODEL_FILE, "--gin_file=pretrain.gin", "--gin.EVAL_PERIOD=7"],
            "no macro 'EVAL_PERIOD'. Bind train_script.train.eval_period in its place.",
        ),
    ],
)
def test_what_a_t5x_file_lacks_is_said_in_its_own_terms(capsys, argv, said):
    assert t5x.main(argv) == 2
    error = capsys.readouterr().err
    assert said.format(runs=gin_files.BUNDLED / "t5x/configs/runs") in error
    assert "Did you mean 'MODEL'" not in error and error.count("\n") == 1


@pytest.mark.parametrize(
    ("binding", "said"),
    [
        ("TRAIN_STEPS='5'", "TRAIN_STEPS is '5'; give a whole number"),
        ("BATCH_SIZE=2.5", "BATCH_SIZE is 2.5; give a whole number"),
        ("train_script.train.eval_period='8'", "train_script.train.eval_period is '8'; give a"),
        ("TASK_FEATURE_LENGTHS={'inputs': 8}", "TASK_FEATURE_LENGTHS lacks ['targets']"),
        (
            "INITIAL_CHECKPOINT_PATH='gone'",
            "INITIAL_CHECKPOINT_PATH: there is no folder gone; give that of a checkpoint.",
        ),
    ],
)
def test_values_are_checked_before_slow_imports(tmp_path, monkeypatch, capsys, binding, said):
    (tmp_path / "slow_tasks.py").write_text("raise AssertionError('it was imported first')")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.gin").write_text(
        "from __gin__ import dynamic_registration\nimport slow_tasks\n"
        "include 't5x/examples/t5/t5_1_1/tiny.gin'\ninclude 't5x/configs/runs/finetune.gin'\n"
        "MIXTURE_OR_TASK_NAME = 'x'\nDROPOUT_RATE = 0.1\nTRAIN_STEPS = 5\n"
        "TASK_FEATURE_LENGTHS = {'inputs': 8, 'targets': 8}\nMODEL_DIR = 'run'\n"
        "INITIAL_CHECKPOINT_PATH = 'gs://x/checkpoint_1'\n"
    )
    argv = ["--gin_file=mine.gin", f"--gin.{binding}"]
    assert t5x.main(["train", *argv]) == 2
    assert said in capsys.readouterr().err
    if "gone" in binding:  # which precompile does not read
        assert t5x.main(["precompile", *argv]) == 2
        assert "it was imported first" in capsys.readouterr().err


def test_a_module_that_is_not_offered_is_named_with_its_place(tiny, tmp_path, gin_file, capsys):
    imports = "import __main__ as train_script\nfrom t5x import export"
    assert t5x.main(["train", gin_file(imports), *macros(tiny, tmp_path, 1)]) == 2
    err = capsys.readouterr().err
    assert "mine.gin, line 4: t5x.export is not offered by the native runner; use" in err
    assert err.count("\n") == 1


def test_an_unknown_attribute_is_named(tiny, tmp_path, gin_file, capsys):
    argv = [gin_file(more="OPTIMIZER = @adafactor.Adafacto()"), *macros(tiny, tmp_path, 3)]
    assert t5x.main(["train", *argv]) == 2
    error = capsys.readouterr().err
    assert "Did you mean 'Adafactor'" in error and "--runner=upstream" in error


@pytest.mark.slow
def test_a_cached_task_needs_no_tensorflow(tiny, tmp_path, gin_file):
    code = (
        "import sys; from ckl_jax.cli import t5x\n"
        "assert t5x.main(sys.argv[1:]) == 0\n"
        "sys.exit('tensorflow' in sys.modules or 'seqio' in sys.modules)"
    )
    argv = ["train", gin_file(), *macros(tiny, tmp_path, 2)]
    done = subprocess.run([sys.executable, "-c", code, *argv], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_run_files_name_only_what_is_offered():
    names.install()
    for file in gin_files.bundled_files():
        if not file.startswith("t5x/"):
            continue
        for line in (gin_files.BUNDLED / file).read_text().splitlines():
            words = line.split()
            if words[:1] == ["from"] and words[1] != "__gin__":
                importlib.import_module(f"{words[1]}.{words[3]}")


def test_after_it_is_forgotten_other_runs_do_not_import_it(tmp_path):
    """The network's class is met by T5X's name first, and then by its own."""
    names.install()
    stock = tmp_path / "stock.gin"
    stock.write_text(
        "from __gin__ import dynamic_registration\nfrom t5x.examples.t5 import network\n"
        "network.Transformer.config = @network.T5Config()\nnetwork.T5Config.emb_dim = 8\n"
    )
    gin_config.load([str(stock)], [])
    assert "t5x" in gin_config.config_text()
    names.uninstall()
    gin_config.load(["ckl_vanilla.gin", "tiny.gin"], [])
    text = gin_config.config_text()
    assert "t5.Transformer.config" in text and "from t5x" not in text


def test_a_wrong_task_is_named_without_seqio_too(monkeypatch):
    monkeypatch.setitem(sys.modules, "seqio", None)  # as if it were not installed
    with pytest.raises(UserError, match="'d2' is no cached task's folder, and SeqIO tasks need"):
        seqio_data.get_task("d2")
