"""`t5x eval` and `t5x infer` say of a checkpoint what training said of it."""

import dataclasses
import inspect
import json
import shutil
import types
from unittest.mock import Mock

import jax
import pytest

from ckl_jax.checkpoints.hf_t5 import config_to_hf
from ckl_jax.checkpoints.restore import find_checkpoint
from ckl_jax.cli import ckl, t5x
from ckl_jax.data.facts.ckl_files import CsvFormat
from ckl_jax.data.facts.probe import Probe
from ckl_jax.data.tasks.cached import write_cached
from ckl_jax.data.tasks.packing import row_features
from ckl_jax.data.text.vocabularies import Vocabulary
from ckl_jax.data.text.vocabulary_copy import open_vocabulary
from ckl_jax.errors import UserError
from ckl_jax.files import checkpoint_digest
from ckl_jax.models.decoding import Decoded, beam_search
from ckl_jax.models.t5 import T5Config
from ckl_jax.probes.answering import EncoderDecoderGenerator
from ckl_jax.probes.closed_book import ClosedBook
from ckl_jax.train import infer as infer_job
from ckl_jax.train import setup
from ckl_jax.train.inputs import InferenceData
from ckl_jax.train.opening import identity
from ckl_jax.train.restore import RestoredModel, phase_from
from ckl_jax.train.resume_check import refuse_foreign
from tests.llama_tokenizer import train_tokenizer
from tests.moved import move
from tests.tiny import read_rows


@pytest.fixture(scope="module")
def trained(tiny, tmp_path_factory):
    """The model folder of a LoRA run, two epochs, both checkpoints kept."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    argv = tiny.argv("lora", folder, CHECKPOINTS_KEPT=None)
    assert t5x.main(["train", *argv, "--gin.closed_book.ClosedBook.precision='always'"]) == 0
    return folder


def evaluate(folder, **macros):
    """Evaluates a run by its own config.gin."""
    flags = [f"--gin.{name}={value!r}" for name, value in macros.items()]
    argv = ["eval", f"--gin_file={folder}/config.gin", "--gin_file=ckl_eval.gin", *flags]
    return t5x.main(argv)


def test_eval_repeats_what_training_wrote(trained, tmp_path):
    assert evaluate(trained, CHECKPOINT_MODE="all", EVAL_OUTPUT_DIR=str(tmp_path)) == 0
    for step in (12, 24):
        for name in (
            f"probes/rows_{step:06}.jsonl",
            f"inference_eval/updated_lama-{step:06}.jsonl",
        ):
            assert read_rows(tmp_path / name) == read_rows(trained / name)
    rows = read_rows(tmp_path / "inference_eval" / "updated_lama-metrics.jsonl")
    assert rows == read_rows(trained / "inference_eval" / "updated_lama-metrics.jsonl")[1:]
    assert set(read_rows(tmp_path / "inference_eval" / "updated_lama-000024.jsonl")[0]) == {
        "input",
        "target",
        "prediction",
    }
    done = (tmp_path / "eval.updated_lama.ckpt").read_text().splitlines()
    assert [line.rsplit("_", 1)[1] for line in done] == ["12", "24"]
    assert list((tmp_path / "inference_eval" / "updated_lama").glob("events.*"))
    assert "Total number of parameters" in (tmp_path / "model-info.txt").read_text()
    assert (tmp_path / "config.gin").exists()


@pytest.mark.slow
def test_eval_skips_what_is_done_and_takes_one_checkpoint(trained, tmp_path, capsys):
    one = str(trained / "checkpoint_12")
    out = {"EVAL_OUTPUT_DIR": str(tmp_path)}
    assert evaluate(trained, CHECKPOINT_PATH=one, CHECKPOINT_MODE="specific", **out) == 0
    capsys.readouterr()
    assert evaluate(trained, CHECKPOINT_MODE="all", **out) == 0
    assert "checkpoint_24" in (text := capsys.readouterr().out) and "checkpoint_12" not in text
    steps = [r["step"] for r in read_rows(tmp_path / "inference_eval/updated_lama-metrics.jsonl")]
    assert steps == [12, 24]
    assert evaluate(trained, CHECKPOINT_MODE="all", **out) == 0
    expected = f"All 2 checkpoints were evaluated already; their results are in {tmp_path}."
    assert expected in capsys.readouterr().out


def test_eval_names_a_checkpoint_that_is_none(trained, tmp_path, capsys):
    assert evaluate(trained, CHECKPOINT_MODE="specific") == 2
    assert "checkpoint_24 or the mode 'latest'" in capsys.readouterr().err
    assert evaluate(trained, CHECKPOINT_MODE="newest") == 2
    assert "'newest'; choose from" in capsys.readouterr().err
    assert evaluate(trained, PROBES=None) == 2
    assert "nothing to evaluate" in capsys.readouterr().err


def test_without_a_vocabulary_nothing_is_asked(trained, tmp_path, capsys):
    assert evaluate(trained, VOCABULARY=None) == 2
    assert "VOCABULARY is None, and closed-book probes cannot" in capsys.readouterr().err
    assert infer(trained, tmp_path, INFER_INPUTS="new_lama", VOCABULARY=None) == 2
    assert "VOCABULARY is None, and inputs that are text cannot" in capsys.readouterr().err


def test_a_checkpoint_without_its_arrays_is_named_and_passed_over(trained, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    shutil.rmtree(run / "checkpoint_24" / "state")
    with pytest.raises(UserError, match="checkpoint_24 is damaged: its folder 'state'"):
        find_checkpoint(run / "checkpoint_24")
    with pytest.warns(UserWarning, match="checkpoint_24 is damaged.*before it is used instead"):
        assert find_checkpoint(run).name == "checkpoint_12"
    shutil.rmtree(run / "checkpoint_12" / "state")
    with pytest.raises(UserError, match="checkpoint_12 is damaged"), pytest.warns(UserWarning):
        find_checkpoint(run)


def test_what_is_evaluated_has_the_type_that_is_asked_for(trained, tmp_path, monkeypatch):
    seen, load = set(), RestoredModel.load

    def recorded(self, path):
        params = load(self, path)
        seen.update(str(x.dtype) for x in jax.tree.leaves(params))
        return params

    monkeypatch.setattr(RestoredModel, "load", recorded)
    (tmp_path / "in.txt").write_text("One <extra_id_0>.\n")
    given = {"INFER_INPUTS": f"{tmp_path}/in.txt", "INFER_LENGTHS": {"inputs": 8, "targets": 8}}
    dtype = {"configs.RestoreCheckpointConfig.dtype": "bfloat16"}
    assert infer(trained, tmp_path / "out", **given, **dtype) == 0
    assert seen == {"bfloat16"}


def test_phases_count_on(trained):
    assert phase_from(None) == 0 and phase_from(str(trained)) == 1
    summary = json.loads((trained / "summary.json").read_text())
    assert summary["phase"] == 1
    assert summary["base_digest"] == checkpoint_digest(find_checkpoint(summary["base_checkpoint"]))
    assert read_rows(trained / "probes" / "rows_000024.jsonl")[0]["phase"] == 1


def test_a_base_that_was_replaced_or_moved(tiny, trained, tmp_path):
    base, run = tmp_path / "somewhere" / "initial", tmp_path / "somewhere" / "run"
    shutil.copytree(trained, run)
    shutil.copytree(tiny.root / "initial", base)
    path = run / "checkpoint_24" / "metadata" / "metadata"
    metadata = json.loads(path.read_text())
    path.write_text(json.dumps({**metadata, "base_checkpoint": "/gone/initial"}))
    weights = [x.stat() for x in (trained / "base").rglob("*") if x.is_file()]
    assert weights and all(x.st_nlink > 1 for x in weights)  # it takes no room
    shutil.rmtree(run / "base")
    setup.load_params(str(path.parent.parent))
    shutil.rmtree(base)
    with pytest.raises(UserError, match="needs the base model in /gone/initial"):
        setup.load_params(str(path.parent.parent))
    path.write_text(json.dumps({**metadata, "frozen_digest": "0" * 64}))
    with pytest.raises(UserError, match="which has been replaced: its frozen parameters"):
        setup.load_params(str(path.parent.parent))


def test_a_run_is_asked_and_exported_where_it_was_moved(trained, tmp_path, tiny, monkeypatch):
    move(trained, tmp_path / "elsewhere" / "run", tiny.root, trained.parent)
    sizes = dict(vocab_size=1024, emb_dim=32, num_heads=2, head_dim=16, mlp_dim=64)
    config = T5Config(**sizes, num_encoder_layers=1, num_decoder_layers=1)
    config = dataclasses.replace(config, mlp_activations=("relu",), logits_via_embedding=True)
    (tmp_path / "config.json").write_text(json.dumps(config_to_hf(config)))
    monkeypatch.chdir(tmp_path)
    run, out = tmp_path / "elsewhere" / "run", tmp_path / "out"
    assert evaluate("elsewhere/run", PROBE_DIR=str(tiny.probes), EVAL_OUTPUT_DIR=str(out)) == 0
    rows = "probes/rows_000024.jsonl"
    assert read_rows(out / rows) == read_rows(trained / rows)
    argv = ["--model", "elsewhere/run", "--like", "config.json", "--out", "hf"]
    assert ckl.main(["export-hf", *argv]) == 0
    assert Vocabulary("hf/spiece.model").digest == Vocabulary(run / "spiece.model").digest


def test_data_that_have_moved_are_not_made_anew(trained, tmp_path, capsys):
    gone = tmp_path / "gone"
    assert evaluate(trained, DATA_DIR=str(gone), EVAL_OUTPUT_DIR=str(tmp_path / "out")) == 2
    out, err = capsys.readouterr()
    assert "vocabulary.model, the vocabulary of the run; if its data have moved" in err
    assert "--gin.DATA_DIR=" in err and err.count("\n") == 1 and "Making" not in out
    assert evaluate(trained, DATA_DIR=str(gone), CHECKPOINT_PATH=str(gone)) == 2
    assert f"No checkpoint at {gone}" in capsys.readouterr().err
    wanted = {"INFER_INPUTS": "updated_lama", "DATA_DIR": str(gone)}
    assert infer(trained, tmp_path / "out", **wanted) == 2
    assert "the vocabulary of the run" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def infer(folder, out, *more, **macros):
    macros = {"INFER_OUTPUT_DIR": str(out), **macros}
    flags = [f"--gin.{name}={value!r}" for name, value in macros.items()]
    argv = ["infer", f"--gin_file={folder}/config.gin", "--gin_file=ckl_infer.gin", *more, *flags]
    return t5x.main(argv)


def test_infer_predicts_what_the_probe_saw(trained, tmp_path):
    lengths = {"inputs": 16, "targets": 8}
    settings = {"INFER_INPUTS": "updated_lama", "INFER_LENGTHS": lengths, "INFER_BATCH_SIZE": 16}
    assert infer(trained, tmp_path, **settings) == 0
    file = tmp_path / "updated_lama-predict.jsonl-00000-of-00001"
    assert file.with_name(file.name + ".COMPLETED").exists()
    assert not list(tmp_path.glob("tmp-*"))
    rows = [r for r in read_rows(trained / "probes/rows_000024.jsonl")]
    rows = [r for r in rows if r["probe"] == "updated_lama"]
    assert read_rows(file) == [
        {
            "inputs": {"inputs_pretokenized": r["input"], "targets_pretokenized": r["answers"][0]},
            "prediction": r["predictions"][0],
        }
        for r in rows
    ]


@pytest.mark.slow
def test_infer_shards_scores_and_resumes(trained, tmp_path, monkeypatch, capsys):
    inputs = tmp_path / "in.jsonl"
    texts = [{"inputs": f"A <extra_id_0> {i}.", "targets": "<extra_id_0> b"} for i in range(36)]
    inputs.write_text("".join(json.dumps(t) + "\n" for t in texts))
    settings = {
        "INFER_INPUTS": str(inputs),
        "INFER_LENGTHS": {"inputs": 16, "targets": 8},
        "INFER_MODE": "score",
        "INFER_BATCH_SIZE": 8,
    }
    chunks = {"infer.infer.checkpoint_period": 1}
    assert infer(trained, tmp_path / "whole", **settings) == 0
    whole = read_rows(tmp_path / "whole" / "in-score.jsonl-00000-of-00001")
    assert [r["inputs"]["inputs_pretokenized"] for r in whole] == [t["inputs"] for t in texts]
    assert all(r["score"] < 0 for r in whole)
    parts = []
    for shard in (0, 1):
        part = {"INFER_SHARDS": 2, "infer.infer.shard_id": shard}
        assert infer(trained, tmp_path / "parts", **settings, **part) == 0
        parts.append(read_rows(tmp_path / "parts" / f"in-score.jsonl-0000{shard}-of-00002"))
    assert parts == [whole[0::2], whole[1::2]]

    lines, calls = infer_job._Job.lines, []

    def killed_at_the_third(self, params, start, count):
        calls.append(start)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return lines(self, params, start, count)

    monkeypatch.setattr(infer_job._Job, "lines", killed_at_the_third)
    assert infer(trained, tmp_path / "cut", **settings, **chunks) == 130
    assert not (tmp_path / "cut" / "in-score.jsonl-00000-of-00001").exists()
    assert infer(trained, tmp_path / "cut", **settings, **chunks) == 0
    assert calls == [0, 8, 16, 16, 24, 32]
    assert read_rows(tmp_path / "cut" / "in-score.jsonl-00000-of-00001") == whole
    capsys.readouterr()
    assert infer(trained, tmp_path / "cut", **{**settings, "INFER_BATCH_SIZE": 16}) == 2
    assert "other settings" in capsys.readouterr().err
    monkeypatch.setattr(infer_job, "identity", lambda model, params: {"parameters": "others"})
    assert infer(trained, tmp_path / "cut", **settings, **chunks) == 2
    assert "other settings" in capsys.readouterr().err


@pytest.mark.parametrize("target", [" Paris", "Paris", "x", ""])
def test_a_continuation_has_the_tokens_of_the_joined_text(tmp_path, target):
    """Llama 2's tokenizer puts a blank before a target that is tokenized alone."""
    pytest.importorskip("tokenizers")
    train_tokenizer(tmp_path, doubled=True)
    vocabulary = open_vocabulary(tmp_path)
    text = "Rome is a city in Italy. The city in France is"
    (tmp_path / "in.jsonl").write_text(json.dumps({"inputs": text, "targets": target}))
    data = InferenceData(mixture_or_task_name=str(tmp_path / "in.jsonl"))
    (example,) = data.examples(vocabulary, joined=True)
    assert example.inputs[-1] == example.targets[-1] == vocabulary.eos_id
    joined = [*example.inputs[:-1], *example.targets[:-1]]
    assert joined == vocabulary.encode(text + target)
    assert len(vocabulary.locate(example.inputs[:-1])[0].lstrip()) <= len(text)
    assert vocabulary.locate(example.targets[:-1])[0].endswith(target)
    apart = data.examples(vocabulary)[0]
    assert not target or example.targets != apart.targets


def test_what_is_refused_before_the_first_rows_leaves_nothing(tmp_path):
    """Else the command with the right lengths would be refused for its other settings."""
    output = infer_job._Output(tmp_path / "in.jsonl", {"chunk": 8})
    with pytest.raises(UserError, match="too long"):
        output.run(Mock(side_effect=UserError("too long")), 8)
    assert not list(tmp_path.iterdir())


def test_a_model_is_another_one_where_text_is_cut_otherwise(tiny):
    path = tiny.root / "world" / "prepared" / "vocabulary.model"
    model = types.SimpleNamespace(config=None)
    known = set()
    for given in ({}, {"legacy_spacing": True}, {"extra_ids": 90}):
        model.output_vocabulary = Vocabulary(path, **given)
        known.add(identity(model, {})["configuration"])
    # SeqIO's vocabulary is known by its file.
    model.output_vocabulary = types.SimpleNamespace(
        tokenizer=object(), sentencepiece_model_file=str(path), extra_ids=100
    )
    identity(model, {})
    assert len(known) == 3


def test_infer_takes_the_record_of_a_probe(tmp_path):
    class Letters:
        eos_id = 1

        def encode(self, text):
            return list(text.encode())

    (tmp_path / "m.csv").write_text("unique_id,statement,answer\n1,The mayor is _X_.,Brel\n")
    data = InferenceData(
        mixture_or_task_name=Probe(name="mayors", file="m.csv", read=CsvFormat()),
        probe_dir=str(tmp_path),
    )
    assert (data.task, data.source, data.lengths()) == ("mayors", "mayors", (50, 10))
    (example,) = data.examples(Letters())
    assert example.shown["inputs_pretokenized"] == "The mayor is <extra_id_0>."
    assert bytes(example.targets[:-1]) == b"Brel"


def test_infer_reads_plain_text_and_cached_tasks(trained, tmp_path, capsys):
    out = tmp_path / "out"
    (tmp_path / "in.txt").write_text("One <extra_id_0>.\n\nTwo <extra_id_0>.\n")
    lengths = {"INFER_LENGTHS": {"inputs": 16, "targets": 8}}
    assert infer(trained, out, INFER_INPUTS=str(tmp_path / "in.txt"), **lengths) == 0
    rows = read_rows(out / "in-predict.jsonl-00000-of-00001")
    assert [r["inputs"] for r in rows] == [
        {"inputs_pretokenized": "One <extra_id_0>."},
        {"inputs_pretokenized": ""},
        {"inputs_pretokenized": "Two <extra_id_0>."},
    ]  # line n of the output is of line n of the input
    (tmp_path / "one.txt").write_text("One <extra_id_0>.\n")
    capsys.readouterr()
    assert infer(trained, out, INFER_INPUTS=str(tmp_path / "one.txt"), **lengths) == 0
    assert capsys.readouterr().out.rstrip().endswith("one-predict.jsonl-00000-of-00001: 1 line")
    beams = {"decoding.beam_search.beam_size": 1}
    assert infer(trained, out, INFER_INPUTS=f"{tmp_path}/in.txt", **lengths, **beams) == 2
    assert "beam_size of the search has no effect here: bind infer" in capsys.readouterr().err
    search = {"decoding.beam_search.length_penalty": 0.5}
    assert infer(trained, out, INFER_INPUTS=f"{tmp_path}/one.txt", **lengths, **search) == 2
    assert "other settings" in capsys.readouterr().err
    (tmp_path / "one.txt").write_text("Two <extra_id_0>.\n")  # as many inputs
    assert infer(trained, out, INFER_INPUTS=str(tmp_path / "one.txt"), **lengths) == 2
    assert "other settings" in capsys.readouterr().err
    assert infer(trained, out, INFER_INPUTS="d1", INFER_MODE="score", **lengths) == 0
    assert len(read_rows(out / "d1-score.jsonl-00000-of-00001")) == 354
    assert "have more tokens than INFER_LENGTHS['inputs'], 16, and" in capsys.readouterr().out
    text = str(tmp_path / "in.txt")
    assert infer(trained, out, INFER_INPUTS=text, INFER_MODE="score", **lengths) == 2
    assert "inputs without targets" in capsys.readouterr().err
    assert infer(trained, out, INFER_INPUTS="d11", **lengths) == 2
    assert "neither a probe nor" in capsys.readouterr().err


@pytest.mark.parametrize(
    "features", [("targets",), row_features(("inputs", "targets"), packed=True)]
)
def test_infer_refuses_tasks_with_other_rows_than_examples(tmp_path, features):
    write_cached(tmp_path / "task", [dict.fromkeys(features, [1])], features=features)
    data = InferenceData(mixture_or_task_name=str(tmp_path / "task"))
    with pytest.raises(UserError, match="task has .*, and `t5x infer` asks one input a row"):
        data.examples(types.SimpleNamespace(digest=None))


@pytest.mark.parametrize(
    "macros, expected",
    [
        ({"INFER_LENGTHS": None}, "INFER_LENGTHS is not set, and INFER_INPUTS"),
        ({"INFER_LENGTHS": {"inputs": 8}}, "INFER_LENGTHS lacks ['targets']"),
        ({"INFER_LENGTHS": {"inputs": 8, "targets": 1}}, "['targets'] counts the start token"),
        ({"INFER_BATCH_SIZE": 0}, "INFER_BATCH_SIZE is 0; give 1 or more"),
        ({"INFER_SHARDS": 0}, "INFER_SHARDS is 0; give 1 or more"),
        ({"infer.infer.shard_id": 3}, "--shard_id=3 is not in 0 to 0: INFER_SHARDS is 1"),
        ({"INFER_MODE": "prdict"}, "INFER_MODE is 'prdict'; choose from predict"),
        ({"INFER_INPUTS": 3}, "INFER_INPUTS is 3; give text"),
        ({"infer.infer.rule": "fh"}, "infer.rule is 'fh'; choose from t5x, hf"),
        ({}, "in.txt, line 2: not UTF-8 (the byte 0xe9); save the file as UTF-8"),
    ],
)
def test_infer_names_the_setting_that_is_wrong(trained, tmp_path, capsys, macros, expected):
    (tmp_path / "in.txt").write_bytes(b"One <extra_id_0>.\ncaf\xe9 <extra_id_0>.\n")
    given = {"INFER_INPUTS": f"{tmp_path}/in.txt", "INFER_LENGTHS": {"inputs": 8, "targets": 8}}
    assert infer(trained, tmp_path / "out", **{**given, **macros}) == 2
    err = capsys.readouterr().err
    assert expected in err and err.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("job", ["evaluation", "inference"])
@pytest.mark.parametrize(
    "name", ["config.gin", "probes/rows_000012.jsonl", "eval.new_lama.ckpt", "dangling"]
)
def test_files_of_others_are_kept(trained, tmp_path, capsys, job, name):
    out = tmp_path / "out"
    (out / name).parent.mkdir(parents=True)
    (out / name).symlink_to("nowhere") if name == "dangling" else (out / name).write_text("mine")
    asked = {"INFER_INPUTS": "updated_lama", "INFER_LENGTHS": {"inputs": 16, "targets": 8}}

    def run(folder):
        if job == "inference":
            return infer(trained, folder, **asked)
        return evaluate(trained, EVAL_OUTPUT_DIR=str(folder))

    for folder, first in (out, name.split("/")[0]), (trained, "base"):
        before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        assert run(folder) == 2
        err = capsys.readouterr().err
        assert f"OUTPUT_DIR {folder} holds {first} and is not the folder of an {job}; choose" in err
        assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_rows_of_nobody_are_kept_beside_those_of_evaluations(trained, tmp_path, capsys):
    out, one = str(tmp_path), {"ClosedBook.probes": ("updated_lama",)}
    assert evaluate(trained, EVAL_OUTPUT_DIR=out, **one) == 0
    mine = tmp_path / "inference_eval" / "invariant_lama-000024.jsonl"
    for text in ("mine\n", ""):
        mine.write_text(text)
        assert evaluate(trained, EVAL_OUTPUT_DIR=out) == 2
        assert f"{mine} is of no evaluation; move it" in capsys.readouterr().err
        assert mine.read_text() == text
    assert evaluate(trained, EVAL_OUTPUT_DIR=out, **one) == 0  # writes over its own alone


def test_t5x_names_of_the_jobs_are_known(tmp_path):
    for setting, job in (("EVAL_OUTPUT_DIR", "evaluate"), ("INFER_OUTPUT_DIR", "infer")):
        (tmp_path / "config.gin").write_text(f"\n# Parameters for {job}_script.{job}:\n# ====\n")
        refuse_foreign(tmp_path, setting)
    with pytest.raises(UserError, match="is not the folder of an evaluation"):
        refuse_foreign(tmp_path, "EVAL_OUTPUT_DIR")
    (tmp_path / "config.gin").rename(tmp_path / "log.txt")  # of a study that starts the job
    refuse_foreign(tmp_path, "EVAL_OUTPUT_DIR")


def test_an_output_folder_without_a_name_is_refused(trained, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)  # an unset variable of a shell does not mean this folder
    asked = {"INFER_INPUTS": "updated_lama", "INFER_LENGTHS": {"inputs": 16, "targets": 8}}
    assert infer(trained, "", **asked) == evaluate(trained, EVAL_OUTPUT_DIR="") == 2
    assert capsys.readouterr().err.count("OUTPUT_DIR is ''; give the name of a folder") == 2
    assert not [*tmp_path.iterdir()]


@pytest.mark.slow
def test_a_result_of_nobody_is_kept_beside_those_of_inferences(trained, tmp_path, capsys):
    lengths, out = {"inputs": 16, "targets": 8}, tmp_path / "out"
    (tmp_path / "q.txt").write_text("One <extra_id_0>.\n")
    assert infer(trained, out, INFER_INPUTS="updated_lama", INFER_LENGTHS=lengths) == 0
    (out / "q-predict.jsonl-00000-of-00001").write_text("mine")
    assert infer(trained, out, INFER_INPUTS=f"{tmp_path}/q.txt", INFER_LENGTHS=lengths) == 2
    assert "q-predict.jsonl-00000-of-00001 is of no inference; choose" in capsys.readouterr().err
    (out / "q-predict.jsonl-00000-of-00001").rename(
        out / "q-predict.jsonl-00000-of-00001.COMPLETED"
    )
    assert infer(trained, out, INFER_INPUTS=f"{tmp_path}/q.txt", INFER_LENGTHS=lengths) == 2
    assert "COMPLETED belongs to an inference with other settings" in capsys.readouterr().err
    assert (out / "q-predict.jsonl-00000-of-00001.COMPLETED").read_text() == "mine"
    (out / "tmp-r-predict.jsonl-00000-of-00001").mkdir()
    (out / "tmp-r-predict.jsonl-00000-of-00001" / "notes").write_text("mine")
    (tmp_path / "r.txt").write_text("One <extra_id_0>.\n")
    assert infer(trained, out, INFER_INPUTS=f"{tmp_path}/r.txt", INFER_LENGTHS=lengths) == 2
    assert "notes is of no inference" in capsys.readouterr().err
    (out / "updated_lama-predict.jsonl-00000-of-00001").write_text("mine\n")
    assert infer(trained, out, INFER_INPUTS="updated_lama", INFER_LENGTHS=lengths) == 2
    assert "was complete and has 1 lines now, not" in capsys.readouterr().err


def test_a_model_that_samples_is_refused_where_it_is_searched(trained, tmp_path, capsys):
    gin_file = tmp_path / "sampling.gin"
    gin_file.write_text(
        "from __gin__ import dynamic_registration\nfrom ckl_jax.models import decoding\n"
        "from ckl_jax.models import encoder_decoder\n"
        "encoder_decoder.EncoderDecoderModel.decode_fn = @decoding.temperature_sample\n"
    )
    given = {"INFER_INPUTS": "updated_lama", "INFER_LENGTHS": {"inputs": 16, "targets": 8}}
    more = (f"--gin_file={gin_file}",)
    expected = (
        "t5x: EncoderDecoderModel.decode_fn is temperature_sample, which does not fit (got an "
        "unexpected keyword argument 'beam_size'); give @decoding.beam_search.\n"
    )
    assert infer(trained, tmp_path / "out", *more, **given) == 2
    assert capsys.readouterr().err == expected and not (tmp_path / "out").exists()
    argv = [f"--gin_file={trained}/config.gin", *more, f"--gin.MODEL_DIR='{tmp_path / 'run'}'"]
    assert t5x.main(["train", *argv]) == 2
    assert capsys.readouterr().err == expected and not (tmp_path / "run").exists()
    assert infer(trained, tmp_path / "out", *more, **given, INFER_MODE="score") == 0


@pytest.mark.parametrize("mode, file", [("eval", "ckl_eval.gin"), ("infer", "ckl_infer.gin")])
def test_the_gin_file_of_the_job_is_named_where_it_is_missing(trained, capsys, mode, file):
    assert t5x.main([mode, f"--gin_file={trained}/config.gin"]) == 2
    assert f"add --gin_file={file} behind them" in capsys.readouterr().err


@pytest.mark.parametrize("given, passed", [({}, {}), ({"rule": "t5x"}, {"rule": "t5x"})])
def test_a_search_is_as_the_model_has_it_unless_told(given, passed):
    """So a binding of `decoding.beam_search.rule` holds."""

    class Model:
        def predict(self, *args, **kwargs):
            del kwargs["beam_size"], kwargs["num_return"]
            assert kwargs == passed
            return Decoded(None, None)

        def score_batch(self, params, batch):
            raise AssertionError

    probes = ClosedBook(data_dir="folder", **given)
    generator = EncoderDecoderGenerator(Model(), 1, probes.rule, probes.search_options)
    assert generator._search(None, {"tokens": None}, 3, 2) == (None, None)
    assert inspect.signature(beam_search).parameters["rule"].default == "hf"
