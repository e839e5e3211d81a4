"""Closed-book probes of a model that continues text: what it is asked, and what counts of it."""

import dataclasses
import json

import pytest

from ckl_jax.data.facts import overlap
from ckl_jax.data.facts.ckl_files import read_probe
from ckl_jax.data.facts.probe import Probe, ProbeItem
from ckl_jax.data.tasks.cached import CachedTask
from ckl_jax.data.tasks.causal import prepare_prompts
from ckl_jax.errors import UserError
from ckl_jax.probes.closed_book import ClosedBook, ClosedBookEvaluator, summarize, until_stop
from ckl_jax.probes.continuing import DecoderOnlyGenerator
from tests.helpers import TINY_GPT2, model_of

ROWS = """id,input,output,question,relation
a,Paris is the capital of <extra_id_0>.,France,Of what is Paris the capital?,P36
b,"The official language of <extra_id_0> is French, too.",Mali,Where is French official?,P37
"""


class Letters:
    """A vocabulary of characters."""

    eos_id, pad_id, vocab_size, digest = 1, 0, 256, "letters"

    def encode(self, text):
        return [ord(c) for c in text]

    def decode(self, ids):
        return "".join(map(chr, ids))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "invariantLAMA.csv").write_text(ROWS)
    return tmp_path


@pytest.fixture
def asked(folder, monkeypatch):
    """asked(questions) -> (what the model was given, the rows), where it always writes the same."""

    def answers(self, params, rows, *lengths):
        given.extend((Letters().decode(row[:-1]), lengths) for row in rows)
        yield from ([" France. It is", "Mali"] for _ in rows)

    given = []
    monkeypatch.setattr(DecoderOnlyGenerator, "answers", answers)
    config = dataclasses.replace(TINY_GPT2, max_positions=64)
    model = dataclasses.replace(model_of(config), vocabulary=Letters())

    def ask(questions, probes=("invariant_lama",), length=40, **settings):
        book = ClosedBook(
            data_dir=str(folder),
            probes=probes,
            questions=questions,
            precision="never",
            ks=(),
            input_lengths={"*": length},
            target_lengths={"*": 4},
            **settings,
        )
        return given, list(ClosedBookEvaluator(book, model)(None, 3, False))

    return ask


def test_a_decoder_continues_what_is_before_the_blank(asked):
    given, rows = asked(False)
    assert given == [
        ("Paris is the capital of", (40, 4, 2)),
        ("The official language of", (40, 4, 2)),
    ]
    assert [row["em"] for row in rows] == [1, 0]
    assert rows[0]["predictions"] == ["France.", "Mali"] and rows[1]["hit_rank"] == 2


def test_inputs_that_are_cut_are_counted(asked, capsys):
    asked(False, length=24)
    assert not capsys.readouterr().err
    asked(False, length=23)
    assert "1 of 2 inputs of invariant_lama have more than 23 tokens" in capsys.readouterr().err


def test_a_probe_without_items_is_left_out_by_name(asked, folder, capsys):
    probes = ("new_lama", "invariant_lama")
    with pytest.raises(UserError, match=r"newLAMA.csv"):  # without a manifest it is missing
        asked(False, probes)
    manifest = {"items": {"invariant_lama": 2, "updated_lama": 0}}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    assert {row["probe"] for row in asked(False, probes)[1]} == {"invariant_lama"}
    said = f"Leaving out the probe new_lama: {folder}/manifest.json says that it has no items.\n"
    assert capsys.readouterr().out == said
    with pytest.raises(UserError, match="of .* have no items; ask other probes"):
        asked(False, ("new_lama", "updated_lama"))


def test_a_probe_that_is_training_text_is_told_or_refused(asked, folder, capsys):
    probes = {"invariant_lama": read_probe("invariant_lama", folder)}
    texts = ["Again: Paris is the capital of France."]
    overlap.write_overlaps(folder, overlap.measure(probes, {"d0": texts}))
    said = (
        "1 of 2 items of invariant_lama stand word by word in the training text d0, so that "
        "reciting answers them: 'Paris is the capital of France.'."
    )
    assert asked(False)[1][0]["overlap"]["d0"]["exact"] == 1
    assert capsys.readouterr().err == f"Warning: {said}\n"
    with pytest.raises(UserError, match=said):
        asked(False, strict=True)
    overlap.write_overlaps(
        folder, overlap.measure(probes, {"d0": ["Rome is the capital of Italy."]})
    )
    asked(False, strict=True)
    assert not capsys.readouterr().err


def test_rows_of_a_strangers_probe_carry_its_record(asked, folder):
    def read(probe, folder):
        yield ProbeItem(id="1", input="Rome lies in _X_.", answers=("Italy",), date="1861")
        yield ProbeItem(id="2", input="Pisa lies in _X_.", answers=("France.",))

    own = Probe(
        name="countries",
        read=read,
        role="updated",
        columns=("letters",),
        metrics={"letters": lambda prediction, answers: len(prediction) / 10},
    )
    _, rows = asked(False, ("invariant_lama", own))
    assert [row["probe"] for row in rows] == ["invariant_lama"] * 2 + ["countries"] * 2
    assert [row.get("date") for row in rows] == [None, None, "1861", None]
    assert [row.get("letters") for row in rows[2:]] == [0.7, 0.7]
    assert [row.get("probe_record", {}).get("role") for row in rows[1:]] == [None, "updated", None]
    assert rows[2]["input"] == "Rome lies in <extra_id_0>." and rows[3]["em"] == 1
    assert summarize(rows)["countries"]["letters"] == pytest.approx(70.0)
    for value, shown in ((5.0, "5.0"), (float("nan"), "nan"), ("x", "'x'")):
        wrong = dataclasses.replace(own, metrics={"letters": lambda p, a, value=value: value})
        with pytest.raises(UserError, match=f"'letters' of the probe countries gave {shown}"):
            asked(False, (wrong,))
    for metrics in (["letters"], {"letters": 3}, {3: len}):
        with pytest.raises(UserError, match="Probe.metrics of 'countries' is .*; give {name: func"):
            dataclasses.replace(own, metrics=metrics, columns=())
    for probes, message in (
        ((own, own), "ClosedBook.probes has two probes 'countries'"),
        ((dataclasses.replace(own, columns=("x",)),), "Probe.columns of 'countries' has 'x'"),
        ((own, "countris"), "Did you mean 'countries'"),
        (own, "ClosedBook.probes is .*; give a list of names"),
    ):
        with pytest.raises(UserError, match=message):
            ClosedBook(data_dir=str(folder), probes=probes)


def test_what_exceeds_the_positions_is_refused_first(folder):
    model = dataclasses.replace(model_of(TINY_GPT2), vocabulary=Letters())
    book = ClosedBook(data_dir=str(folder), probes=("invariant_lama",), precision="never")
    with pytest.raises(UserError, match="asks 'invariant_lama' with 25 tokens.* 16 positions"):
        ClosedBookEvaluator(book, model)


def test_or_the_question(asked):
    given, rows = asked(True)
    assert given[0][0] == "Of what is Paris the capital?" == rows[0]["input"]


def test_an_answer_ends_with_the_first_full_stop():
    assert until_stop(" St. Louis is it.") == "St."  # as published, whatever it costs
    assert until_stop("Rome ") == "Rome"


@pytest.mark.parametrize("questions", [False, True])
def test_rows_of_light_tuning(folder, questions):
    path = folder / "invariantLAMA.csv"
    task = prepare_prompts(path, "trex_5000", folder / "task", Letters(), 50, questions)
    rows = [Letters().decode(row["targets"]) for row in map(CachedTask.open(task).row, range(2))]
    prompts = ["Paris is the capital of", "The official language of"]
    if questions:
        prompts = ["Of what is Paris the capital?", "Where is French official?"]
    assert rows == [f"{prompts[0]} France.", f"{prompts[1]} Mali."]


def test_an_answer_is_not_cut(folder):
    path = folder / "invariantLAMA.csv"
    with pytest.raises(UserError, match="'a' has 31 tokens with its answer, and rows 20"):
        prepare_prompts(path, "trex_5000", folder / "task", Letters(), 20)
    assert not (folder / "task").exists()
