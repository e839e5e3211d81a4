"""Questions to models: what they were tuned on they know, and the table says how well."""

import dataclasses
import json
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from ckl_jax.checkpoints.store import CheckpointStore
from ckl_jax.cli.ckl import main
from ckl_jax.data.facts.questions import Question, write_questions
from ckl_jax.errors import UserError
from ckl_jax.papers.mind_the_gap import office_holder_qa
from ckl_jax.papers.mind_the_gap.analysis import office_holder_qa as analysis
from ckl_jax.train.configs import RestoreCheckpointConfig
from ckl_jax.train.opening import Opened, open_checkpoint
from tests.helpers import TINY, TINY_BERT, TINY_XL, model_of
from tests.papers.mind_the_gap.dated_world import Letters


class Words(Letters):
    """Letters, of which words are made again."""

    def decode(self, ids):
        return "".join(chr(int(i) - 2 + ord("a")) for i in ids if i > 1)


def _questions(count=8):
    return [
        Question(f"q{i}", f"who is {chr(97 + i)} in may", (f"mr{chr(104 + i)}", "x"), "2019-05")
        for i in range(count)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("config", [TINY_XL, TINY])
def test_what_was_tuned_on_is_known_and_nothing_before(tmp_path, config):
    questions = [dataclasses.replace(q, answers=(q.answers[0],)) for q in _questions()]
    both = {"input_vocabulary": Words(), "output_vocabulary": Words()}
    model = model_of(config, **({"vocabulary": Words()} if config is TINY_XL else both))
    with CheckpointStore(str(tmp_path)) as store:
        params = jax.jit(model.init)(jax.random.key(0))["params"]
        store.save(1, {"params": params}, {"vocabulary_digest": Words.digest})
    told = {}
    for epochs in (0, 60):
        rows = office_holder_qa.answers_of(
            open_checkpoint(
                model=model, restore_checkpoint_cfg=RestoreCheckpointConfig(path=str(tmp_path))
            ),
            questions=questions,
            tune=questions,
            settings=office_holder_qa.Settings(
                epochs=epochs, learning_rate=1e-2, batch_size=3, length=24
            ),
        )
        assert [row["id"] for row in rows] == [q.id for q in questions]
        told[epochs] = np.mean([row["em"] for row in rows])
        losses = np.array([row["loss"] / row["words"] for row in rows])
        # Beside untrained models a uniform one has the loss of log 28 for each letter and end.
        assert losses.min() > 0 and (losses.mean() < 1.5 if epochs else losses.mean() > 5)
    assert told[0] == 0 and told[60] > 0.8


def test_error_bars_are_two_standard_errors(tmp_path):
    rows = [{"id": i, "em": int(i % 4 == 0), "f1": 0.5} for i in range(100)]
    found = analysis.summarize({"a": rows})["a"]
    assert found["em"]["value"] == 25.0
    assert found["em"]["error"] == pytest.approx(200 * np.sqrt(0.25 * 0.75 / 100))
    assert found["f1"] == {"value": 50.0, "error": 0.0, "low": 50.0, "high": 50.0}
    with pytest.raises(UserError, match="b was evaluated on other questions than a"):
        analysis.summarize({"a": rows, "b": rows[:-1]})
    analysis.write_answers({"2018": rows, "2019": rows[::-1][::-1]}, tmp_path)
    assert json.loads((tmp_path / "asked.json").read_text())["2019"]["questions"] == 100
    assert (tmp_path / "asked.png").stat().st_size > 1000


def test_the_perplexity_of_answers_is_of_words():
    losses, words = [1.0, 4.0, 2.0, 5.0], [1, 2, 1, 2]
    rows = [
        {"id": i, "em": 0, "f1": 0.0, "loss": loss, "words": n}
        for i, (loss, n) in enumerate(zip(losses, words, strict=True))
    ]
    found = analysis.summarize({"a": rows})["a"]["perplexity"]
    assert found["value"] == pytest.approx(np.exp(12 / 6))
    error = 2 * np.sqrt(1 + 0 + 0 + 1) / 6  # residuals are -1, 0, 0 and 1
    assert found["low"] == pytest.approx(np.exp(2 - error))
    del rows[0]["loss"]  # of an earlier version
    assert "perplexity" not in analysis.summarize({"a": rows})["a"]
    section = analysis.table(analysis.summarize({"a": rows}), [["the paper's", 7, None, "47"]])
    assert [[cell.text for cell in row][-1] for row in section.rows] == ["–", "–"]


def test_a_question_may_be_asked_of_two_passages(tmp_path):
    files = []
    for passage in ("it rained", "it snowed"):
        files.append(str(tmp_path / f"{passage}.jsonl"))
        write_questions(files[-1], [dataclasses.replace(_questions(1)[0], passage=passage)])
    with pytest.raises(UserError, match="nowhere"):  # the next that is looked at
        office_holder_qa.ask({"a": "nowhere"}, files[0], str(tmp_path / "out"), files[1])


def test_bad_input_is_one_sentence(tmp_path, capsys):
    asked, other = tmp_path / "asked.jsonl", tmp_path / "tune.jsonl"
    write_questions(asked, _questions())
    write_questions(other, _questions(2))
    run = tmp_path / "run"
    with CheckpointStore(str(run)) as store:
        store.save(0, {"params": {"x": np.zeros(1)}}, {})
    for arguments, sentence in (
        (["--questions", str(asked), "--tune", str(other)], "share questions"),
        (["--questions", str(tmp_path / "nothing")], "nothing"),
        (["--questions", str(asked), "--epochs", "-1"], "--epochs is -1"),
        (["--questions", str(asked)], "neither the config.gin of a run"),
    ):
        out = str(tmp_path / "out")
        assert main(["ask", "--model", f"a={run}", "--out", out, *arguments]) == 2
        told = capsys.readouterr().err
        assert sentence in told and told.count("\n") == 1


def _refuse(*unused):
    raise UserError("There are no answers of such a model.")


def test_answers_are_those_of_the_model_and_the_questions_that_are_named(tmp_path, monkeypatch):
    asked = tmp_path / "asked.jsonl"
    write_questions(asked, _questions())
    for name in ("a", "b"):
        with CheckpointStore(str(tmp_path / name)) as store:
            store.save(0, {"params": {"x": np.zeros(1)}}, {})
    row = {"id": 0, "em": 1, "f1": 1.0}
    model = SimpleNamespace(config="sizes", output_vocabulary=None)
    opened = SimpleNamespace(model=model, params={"x": np.zeros(1)})
    monkeypatch.setattr(office_holder_qa, "open_model", lambda place, trusted: opened)
    monkeypatch.setattr(office_holder_qa, "answers_of", lambda opened, *more: [row])

    def ask(place):
        return office_holder_qa.ask({"a": str(tmp_path / place)}, asked, tmp_path / "out")

    with monkeypatch.context() as m:
        m.setattr(office_holder_qa, "answers_of", _refuse)
        with pytest.raises(UserError, match="of such a model"):
            ask("a")
    assert not (tmp_path / "out").exists()
    ask("a")
    ask("a")
    with pytest.raises(UserError, match="has the answers of another model than .*/b is now; give"):
        ask("b")
    for changed in ("params", "config"):
        with monkeypatch.context() as m:
            if changed == "params":
                m.setattr(opened, "params", {"x": np.ones(1)})
            else:
                m.setattr(model, "config", "other sizes")
            with pytest.raises(UserError, match="another model than .*/a is now"):
                ask("a")
    asked.write_text(asked.read_text().replace("who", "WHO"))
    with pytest.raises(UserError, match="was begun when asked.jsonl had another size or content"):
        ask("a")


def test_a_masked_model_is_refused():
    model = model_of(TINY_BERT)
    with pytest.raises(UserError, match="A BertConfig writes no answers; rank dated facts"):
        office_holder_qa.answers_of(
            Opened(model, {}), _questions(), (), office_holder_qa.Settings()
        )


def test_scores_by_the_date_of_the_answer(tmp_path):
    days = ["2017-03", "2018", "2018-01-02", "2019-12-31", "", "2018-05"]
    rows = [{"id": i, "em": i % 2, "f1": 0.5, "date": day} for i, day in enumerate(days)]
    by_date = analysis.summarize({"a": rows})["a"]["by_date"]
    assert [(x["date"], x["questions"]) for x in by_date] == [("2017", 1), ("2018", 3), ("2019", 1)]
    assert by_date[1]["em"]["value"] == pytest.approx(200 / 3)
    error = 200 * np.sqrt(2 / 9 / 3)
    assert by_date[1]["em"]["error"] == pytest.approx(error)
    days = ["2018-01-02", "2018-01", "", "2019-02", "2018-01", "2018-01"]  # of two years
    months = [{**row, "date": day} for row, day in zip(rows, days, strict=True)]
    by_date = analysis.summarize({"a": months})["a"]["by_date"]
    assert [(x["date"], x["questions"]) for x in by_date] == [("2018-01", 4), ("2019-02", 1)]
    analysis.write_answers({"a": rows, "b": rows}, tmp_path)
    size = (tmp_path / "by_date.png").stat().st_size
    rows = [{**row, "loss": 3.0 + row["id"], "words": 2} for row in rows]
    by_date = analysis.summarize({"a": rows})["a"]["by_date"]
    assert by_date[0]["perplexity"]["value"] == pytest.approx(np.exp(1.5))
    analysis.write_answers({"a": rows, "b": rows}, tmp_path)
    assert (tmp_path / "by_date.png").stat().st_size > size > 1000  # a second panel
