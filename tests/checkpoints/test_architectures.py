"""An architecture that the package does not know: its configuration, module and record are here."""

import dataclasses
import json
import shutil
from typing import ClassVar

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

from ckl_jax.checkpoints import architectures, hf_gpt2, peft
from ckl_jax.checkpoints.architecture import Architecture, HuggingFace, Peft
from ckl_jax.checkpoints.from_hf import load_hf
from ckl_jax.checkpoints.hf_entry import Entry, linear
from ckl_jax.checkpoints.to_hf import save_hf
from ckl_jax.cli import ckl, t5x
from ckl_jax.config import gin_config, gin_scan
from ckl_jax.convert.hugging_face import merged, tokenizer_files
from ckl_jax.data.facts.relational import Dataset
from ckl_jax.data.text.documents import Document, write_documents
from ckl_jax.errors import UserError
from ckl_jax.methods.modular import modular
from ckl_jax.models import gpt2, layers
from ckl_jax.models.decoder_only import DecoderOnlyModel
from ckl_jax.papers.lm_pub_quiz import probe
from ckl_jax.train.setup import load_params
from ckl_jax.trees import paths
from tests.helpers import TINY, TINY_GPT2, TINY_XL, assert_trees_close, random_params
from tests.parity.ranked import unpack

pytest.importorskip("tokenizers")

# --- the stranger's module


@dataclasses.dataclass(frozen=True)
class QuillConfig(gpt2.GPT2Config):
    """A GPT-2 with T5's norms and a field of its own."""

    norm_epsilon: float = 1e-6

    def norm(self, name: str) -> layers.RMSNorm:
        return layers.RMSNorm(self.norm_epsilon, self.dtype, name=name)


class Quill(gpt2.Transformer):
    """GPT-2's network over the norms of `QuillConfig`."""

    config: QuillConfig


SIZES = {
    "vocab_size": "vocab_size",
    "width": "emb_dim",
    "heads": "num_heads",
    "head_width": "head_dim",
    "inner": "mlp_dim",
    "depth": "num_layers",
    "length": "max_positions",
    "epsilon": "norm_epsilon",
}


def config_from_hf(settings, **overrides):
    fields = {ours: settings[theirs] for theirs, ours in SIZES.items()}
    return QuillConfig(**{"dropout_rate": 0.0, **fields, **overrides})


def config_to_hf(config):
    sizes = {theirs: getattr(config, ours) for theirs, ours in SIZES.items()}
    return {"architectures": ["QuillForCausalLM"], "model_type": "quill", **sizes}


def entries(config):
    d, inner = config.emb_dim, config.num_heads * config.head_dim
    positions = (config.max_positions, d)
    rows = [
        Entry("quill.tokens.weight", "token_embedder/embedding", False, (config.vocab_size, d)),
        Entry("quill.places.weight", "decoder/position_embedder/pos_embedding", False, positions),
        Entry("quill.norm.weight", "decoder/decoder_norm/scale", False, (d,)),
    ]
    for i in range(config.num_layers):
        there, here = f"quill.layers.{i}", f"decoder/layers_{i}"
        for word, letter in {"query": "q", "key": "k", "value": "v"}.items():
            rows += linear(f"{there}.{letter}_proj", f"{here}/self_attention/{word}", d, inner)
        rows += linear(f"{there}.o_proj", f"{here}/self_attention/out", inner, d)
        rows += linear(f"{there}.up_proj", f"{here}/mlp/wi", d, config.mlp_dim)
        rows += linear(f"{there}.down_proj", f"{here}/mlp/wo", config.mlp_dim, d)
        for norm in ("self_attention", "mlp"):
            scale = f"{here}/pre_{norm}_layer_norm/scale"
            rows.append(Entry(f"{there}.{norm}_norm.weight", scale, False, (d,)))
    return rows


QUILL = Architecture(
    name="Quill",
    config=QuillConfig,
    module=Quill,
    model=DecoderOnlyModel,
    vocabulary=dataclasses.replace(hf_gpt2.ARCHITECTURE.vocabulary, legacy_tokens=()),
    gin_file="quill.gin",
    run_gin="a temporalwiki_<method>.gin and quill.gin",
    usage="Prepare data with its vocabulary: `ckl data rows --vocabulary {}`.",
    run_fields=(*hf_gpt2.ARCHITECTURE.run_fields, "layer_norm_epsilon"),
    hugging_face=HuggingFace(
        model_types=("quill",),
        config_from_hf=config_from_hf,
        config_to_hf=config_to_hf,
        entries=entries,
        embedding_names=lambda config: ("quill.tokens.weight",),
    ),
    peft=Peft(task_type="CAUSAL_LM", gin_file="temporalwiki_lora.gin"),
)
GIN = """
from __gin__ import dynamic_registration
from ckl_jax.models import decoder_only
from tests.checkpoints import test_architectures
include 'models/gpt2.gin'
decoder_only.DecoderOnlyModel.module = @test_architectures.Quill()
test_architectures.Quill.config = @test_architectures.QuillConfig()
test_architectures.QuillConfig:
    dtype = %ACTIVATION_DTYPE
    dropout_rate = %DROPOUT_RATE
    scan_layers = %SCAN_LAYERS
    remat_policy = %REMAT_POLICY
"""

# --- what the package does with it


@pytest.fixture
def registered(monkeypatch):
    """Registers Quill as its module would when it is imported, for one test."""
    monkeypatch.setattr(architectures, "_registered", dict(architectures._registered))
    architectures.register(QUILL)


@pytest.fixture
def hf(registered, tmp_path):
    """A folder as Hugging Face has it, and a relational dataset."""
    golden = unpack("lm_pub_quiz.zip", tmp_path / "golden")
    size = json.loads((golden / "model" / "config.json").read_text())["vocab_size"]
    sizes = {f.name: getattr(TINY_GPT2, f.name) for f in dataclasses.fields(TINY_GPT2)}
    sizes |= {"vocab_size": size, "max_positions": 64, "norm_epsilon": 1e-5}
    config = QuillConfig(**sizes)
    save_hf(tmp_path / "hf", random_params(config), config)
    for name in ("tokenizer.json", "vocab.json", "merges.txt"):
        shutil.copy(golden / "model" / name, tmp_path / "hf")
    return tmp_path / "hf"


def test_a_model_comes_in_and_goes_out_bit_by_bit(hf, tmp_path, capsys):
    run, back = str(tmp_path / "run"), tmp_path / "back"
    assert ckl.main(["import-hf", "--model", str(hf), "--out", run]) == 0
    assert f"`ckl data rows --vocabulary {run}`" in capsys.readouterr().out
    text = (tmp_path / "run" / "model.gin").read_text()
    assert "lay it over a temporalwiki_<method>.gin and quill.gin" in text
    assert "norm_epsilon = 1e-05" in text and "layer_norm_epsilon" not in text
    flags = ["--like", str(hf / "config.json"), "--out", str(back)]
    assert ckl.main(["export-hf", "--model", run, *flags]) == 0
    for name in ("model.safetensors", "tokenizer.json"):
        assert (back / name).read_bytes() == (hf / name).read_bytes()
    assert json.loads((back / "config.json").read_text())["epsilon"] == 1e-5


def test_a_model_trains_with_lora_goes_out_and_is_ranked(hf, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)  # where the stranger has a gin file
    (tmp_path / "quill.gin").write_text(GIN)
    ours, rows, run = tmp_path / "ours", tmp_path / "rows", tmp_path / "run"
    assert ckl.main(["import-hf", "--model", str(hf), "--out", str(ours)]) == 0
    news = [Document(str(i), "2021-08-01", "", "the town is in " * i) for i in range(1, 20)]
    write_documents(tmp_path / "news.jsonl", news)
    argv = ["--documents", str(tmp_path / "news.jsonl"), "--out", str(rows), "--length", "16"]
    assert ckl.main(["data", "rows", "--vocabulary", str(ours), "--pack", *argv]) == 0
    macros = {
        "INITIAL_CHECKPOINT_PATH": str(ours),
        "CACHE_DIRS": (str(rows),),
        "BATCH_SIZE": 8,
        "MIXTURE_OR_TASK_NAME": "news",
        "HELD_OUT_TASKS": ("news",),
        "TRAIN_STEPS": 2,
        "LEARNING_RATE": 1.0,
        "TASK_FEATURE_LENGTHS": {"targets": 16},
        "MODEL_DIR": str(run),
    }
    files = ("temporalwiki_lora.gin", "quill.gin", ours / "model.gin")
    argv = [f"--gin_file={file}" for file in files]
    argv += [f"--gin_bindings={n} = {v!r}" for n, v in macros.items()]
    argv.append(f"--trust_imports={__name__}")
    assert t5x.main(["train", *argv]) == 0

    like, back = hf / "config.json", tmp_path / "back"
    flags = ["--like", str(like), "--out"]
    assert ckl.main(["export-hf", "--model", str(run), *flags, str(back)]) == 0
    start, after = load_file(hf / "model.safetensors"), load_file(back / "model.safetensors")
    changed = {name.split(".")[-2] for name, x in after.items() if (x != start[name]).any()}
    assert changed == {"q_proj", "v_proj"} and start.keys() == after.keys()
    config, params = load_hf(back)
    assert_trees_close(params, merged(load_params(str(run)), str(run)), rtol=0, atol=0)

    adapter, again = tmp_path / "adapter", tmp_path / "again"
    assert ckl.main(["export-peft", "--model", str(run), *flags, str(adapter)]) == 0
    settings = json.loads((adapter / peft.CONFIG).read_text())
    assert settings["target_modules"] == ["q_proj", "v_proj"] and not settings["fan_in_fan_out"]
    argv = ["--adapter", str(adapter), "--model", str(ours), *flags, str(again)]
    assert ckl.main(["import-peft", *argv]) == 0
    theirs, mine = (paths.flatten(load_params(str(f))) for f in (run, again))
    for path in filter(peft.is_adapter, theirs):
        np.testing.assert_array_equal(mine[path], theirs[path])

    dataset = Dataset.from_path(tmp_path / "golden" / "dataset")
    asked = probe.Settings(templates=(0,), trusted=(__name__,))
    folders = (back, run, ours)
    exported, trained, before = (probe.probe(str(f), dataset, asked)["P1"].scores for f in folders)
    np.testing.assert_allclose(exported, trained, rtol=1e-5)
    assert np.abs(trained - before).max() > 0.02


def test_files_beside_a_model_are_those_of_its_record(hf, tmp_path, monkeypatch):
    files = dataclasses.replace(QUILL.vocabulary, more=("quill.txt",))
    architectures.register(dataclasses.replace(QUILL, vocabulary=files))
    (hf / "quill.txt").write_text("feather")
    ours = str(tmp_path / "ours")
    assert ckl.main(["import-hf", "--model", str(hf), "--out", ours]) == 0
    assert (tmp_path / "ours" / "quill.txt").read_text() == "feather"
    names = [file.name for file in tokenizer_files(ours, hf, load_hf(hf)[0])]
    assert {"tokenizer.json", "quill.txt"} <= set(names)


@pytest.mark.parametrize("architecture", architectures.known(), ids=lambda a: a.name)
def test_a_records_gin_file_configures_its_classes(architecture):
    read = gin_config.read([architecture.gin_file], overrides=["VOCABULARY = None"])
    values = {b.name: b.value for b in read.scan.bindings}
    assert gin_scan.model_config(values) == architecture.gin_name
    module = architecture.gin_name.split(".")[0]
    assert values[f"{values['MODEL'].selector}.module"].selector == (
        f"{module}.{architecture.module.__name__}"
    )
    assert values["MODEL"].selector.endswith(f".{architecture.model.__name__}")
    del values["MODEL"]
    with pytest.raises(UserError, match="The gin files do not bind MODEL to a class of a model"):
        gin_scan.model_config(values)


def test_what_nobody_registered_is_refused_with_what_is_known(tmp_path):
    text = r"GPT-2 \(gpt2\), BERT \(bert, roberta, .*\), decoder \(.*opt\), .* can be imported\. To"
    with pytest.raises(UserError, match=text):
        architectures.of_model_type("quill")
    with pytest.raises(UserError, match=r"object is the .* T5 \(t5\.T5Config\), GPT-2"):
        architectures.of_config(object())
    with pytest.raises(UserError, match="model.gin configures no registered architecture"):
        architectures.of_gin_names({"quill.QuillConfig"}, "model.gin")
    with pytest.raises(UserError, match="A Transformer-XL cannot be read from Hugging Face's"):
        save_hf(tmp_path, {}, TINY_XL)
    with pytest.raises(UserError, match="QuillConfig is the configuration of no registered"):
        architectures.of_config(QuillConfig())  # a subclass need not compute the same


def test_a_record_that_takes_anothers_name_is_refused(registered):
    architectures.register(QUILL)  # its module was reloaded
    assert architectures.of_config(QuillConfig()) is QUILL
    form = dataclasses.replace(QUILL.hugging_face, model_types=("quill", "gpt2"))
    with pytest.raises(UserError, match="GPT-2 and Quill both claim 'gpt2'"):
        architectures.register(dataclasses.replace(QUILL, hugging_face=form))
    with pytest.raises(UserError, match="Quill and Feather both claim"):
        architectures.register(dataclasses.replace(QUILL, name="Feather"))


def test_modular_asks_for_an_encoder_and_not_for_t5():
    @dataclasses.dataclass(frozen=True)
    class Other:
        """Of another class than T5's, with what Modular needs."""

        inner: object = TINY
        emb_dim: int = TINY.emb_dim
        dense: layers.DenseFactory = layers.DenseFactory()
        side: tuple = ()
        legacy_bypass_side: bool = False
        has_encoder: ClassVar[bool] = True

        def for_second_encoder(self, num_layers, **sizes):
            return self.inner.for_second_encoder(num_layers, **sizes)

    side = modular(emb_dim=8, num_heads=1, head_dim=4, mlp_dim=8, num_layers=1).side[0]
    side.check(Other())
    module, ids = side.build(Other()), np.ones((1, 3), np.int32)
    bias = np.zeros((1, 1, 3, 3), np.float32)
    shape = jax.eval_shape(lambda: module.init(jax.random.key(0), ids, {}, bias, True))
    assert shape["params"]["projection"]["kernel"].shape == (8, TINY.emb_dim)
    with pytest.raises(UserError, match="QuillConfig has no encoder; choose lora"):
        side.check(QuillConfig())
