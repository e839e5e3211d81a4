"""A masked model on a stream of experiences: the table of what it keeps, and the whole command."""

import json
from pathlib import Path

import pytest

from ckl_jax.cli.ckl import main
from ckl_jax.data.tasks.cached import CachedTask
from ckl_jax.data.text.documents import read_documents
from ckl_jax.errors import UserError
from ckl_jax.papers.lm_pub_quiz import knowledge_stream
from ckl_jax.papers.lm_pub_quiz.analysis import trajectories
from ckl_jax.papers.lm_pub_quiz.knowledge_stream import Stream
from tests.parity.ranked import unpack


def test_scores_are_relative_to_the_first():
    points = {
        "start": {"ranking": 40.5, "ranking_same_items": 50.0, "mask_filling": 31.3},
        "one": {"ranking": 20.25, "ranking_same_items": 50.0, "mask_filling": 0.0},
    }
    assert trajectories.relative(points, "ranking") == [100.0, 50.0]
    lines = trajectories.section(points).text()
    assert len(lines) == 4 and "20.25 (50.0%)" in lines[1] and "0.00 (0.0%)" in lines[3]
    points["start"]["mask_filling"] = 0.0
    assert "(–%)" in trajectories.section(points).text()[3]


def test_what_does_not_belong_together_is_said():
    with pytest.raises(UserError, match="--model, --documents and --dataset belong together"):
        Stream(model="bert")
    with pytest.raises(UserError, match="--experiences is 0"):
        Stream(experiences=0)


@pytest.mark.parametrize(
    ("binding", "told"),
    [
        ("EPOCHS=1", "--gin.EPOCHS: the command sets it itself"),
        ("BATCH_SIZE=0", "BATCH_SIZE is 0; give 1 or more"),
        ("NUM_MICROBATCHES=7", "NUM_MICROBATCHES=7 does not divide BATCH_SIZE=64"),
        ("MESH_SHAPE={'nope': 1}", "Unknown mesh axis 'nope'"),
        ("MESH_SHAPE={'data': 3}", "{'data': 3}, which does not use up the 8 devices"),
    ],
)
def test_settings_are_refused_before_anything_is_written(binding, told, tmp_path, capsys):
    out = tmp_path / "out"
    argv = ["stream", "--size=tiny", "--out", str(out), "--gin", binding]
    assert main(argv) == 2 and not out.exists()
    assert told in capsys.readouterr().err


def test_a_file_that_is_not_there_leaves_nothing(tmp_path, capsys):
    out = tmp_path / "out"
    given = ["--model", str(tmp_path), "--documents", "nowhere.jsonl", "--dataset", str(tmp_path)]
    assert main(["stream", "--out", str(out), *given]) == 2 and not out.exists()
    assert "nowhere.jsonl" in capsys.readouterr().err


def test_another_kind_of_model_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(knowledge_stream, "find_checkpoint", lambda path: path)
    golden, out = unpack("lm_pub_quiz.zip", tmp_path / "golden"), tmp_path / "out"
    (tmp_path / "news.jsonl").write_text("")
    places = {"model": "model", "documents": "../news.jsonl", "dataset": "dataset"}
    stream = Stream(out=str(out), **{name: str(golden / at) for name, at in places.items()})
    with pytest.raises(UserError, match="model is not a BERT or RoBERTa"):
        knowledge_stream.run_stream(stream)
    assert not out.exists()


def test_rows_are_no_longer_than_the_positions_of_a_model(tmp_path):
    sizes = {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8}
    config = {"model_type": "bert", "num_hidden_layers": 1, "vocab_size": 9, **sizes}
    for positions, length in ((128, 128), (1024, 512)):
        written = json.dumps(config | {"max_position_embeddings": positions})
        (tmp_path / "config.json").write_text(written)
        stream = Stream(model=str(tmp_path), documents="news.jsonl", dataset="quiz")
        trained = knowledge_stream._trainings(stream, tmp_path)[0]
        assert f"{{'targets': {length}}}" in str(trained)


@pytest.mark.parametrize(("rows", "batch"), [(50, 32), (64, 64), (900, 64)])
def test_no_experience_has_fewer_rows_than_a_batch(rows, batch, monkeypatch):
    """`ckl stream --size tiny` ended after minutes, at the second experience."""
    counts = {"experience_1": 900, "experience_2": rows}
    monkeypatch.setattr(CachedTask, "rows_in", lambda folder, name: counts[name])
    trained = knowledge_stream._trainings(Stream(size="tiny", experiences=2), Path("model"))
    assert len(trained) == 3 and all(f"--gin.BATCH_SIZE={batch}" in t.command for t in trained)


@pytest.mark.slow
def test_a_tiny_stream_goes_on_where_it_was(tmp_path, capsys):
    out = tmp_path / "stream"
    command = ["stream", "--out", str(out), "--size", "tiny", "--experiences", "2"]
    command += ["--epochs", "1", "--initial-epochs", "2"]
    assert main(command) == 0
    parts = [list(read_documents(out / f"documents/experience_{i}.jsonl")) for i in (1, 2)]
    assert max(d.date for d in parts[0]) <= min(d.date for d in parts[1])
    # Rows are paragraphs; of articles there are as many in both.
    articles = [len({d.id.rpartition("-")[0] for d in part}) for part in parts]
    assert abs(articles[0] - articles[1]) <= 1
    first = json.loads((out / "trajectories.json").read_text())
    assert list(first["scores"]) == ["initial", "experience_1", "experience_2"]
    assert first["scores"]["initial"]["one_piece_facts"] > 20
    assert main(["claims", str(out), "--samples", "100"]) == 0
    claims = json.loads((out / "claims.json").read_text())["claims"]
    easier, initial = claims[0]["mean"], first["scores"]["initial"]
    expected = initial["ranking_same_items"] - initial["mask_filling"]
    assert easier == pytest.approx(expected) and len(claims) == 5
    (out / "experience_2" / "summary.json").unlink()
    capsys.readouterr()
    assert main(command) == 0
    assert "initial       started" not in capsys.readouterr().out
    assert json.loads((out / "trajectories.json").read_text()) == first
    assert main([*command[:-1], "3"]) == 2
    assert "holds a stream with" in capsys.readouterr().err
