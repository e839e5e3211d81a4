"""The paper's figures and analyses out of rows, against numbers counted by hand."""

import json

import numpy as np
import pytest

from ckl_jax.analysis.sections import write_markdown
from ckl_jax.analysis.study import load_study
from ckl_jax.cli.ckl import main
from ckl_jax.data.facts.ckl_files import corpus_texts
from ckl_jax.data.text.answer_types import AnswerTypes, relation_kinds
from ckl_jax.errors import UserError
from ckl_jax.files import write_json, write_jsonl
from ckl_jax.papers.ckl.analysis import (
    answer_analysis,
    experiment_curves,
    experiment_tables,
    prediction_changes,
    published_ckl,
    transfer,
)
from ckl_jax.probes.mentions import count_mentions


def row(
    probe,
    item,
    em,
    *,
    step=9,
    answers=("Ada Byron",),
    said="x",
    relation="",
    old=(),
    rank=0,
    beams=2,
):
    return {
        "probe": probe,
        "item": str(item),
        "step": step,
        "epoch": step // 3,
        "em": em,
        "f1": float(em),
        "predictions": [said],
        "answers": list(answers),
        "old_answers": list(old),
        "em_old": 0,
        "relation": relation,
        "input": f"{item} is <extra_id_0>.",
        "hit_rank": rank,
        "beams": beams,
    }


def run(folder, by_step, base=None):
    """A MODEL_DIR of these rows; three steps are an epoch."""
    for step, rows in by_step.items():
        rows = [{**r, "step": step, "epoch": step // 3} for r in rows]
        write_jsonl(folder / "probes" / f"rows_{step:06}.jsonl", rows)
    last = max(by_step)
    write_json(
        folder / "summary.json",
        {
            "run": folder.name,
            "base_checkpoint": base and str(base),
            "steps": last,
            "steps_per_epoch": [3] * (last // 3),
        },
    )
    return folder


def probe(name, *right, **options):
    return [row(name, i, em, **options) for i, em in enumerate(right)]


# --- transfer


def test_transfer_is_that_of_the_papers_scores_and_ours():
    first, second = published_ckl.TABLE_3["p1"], published_ckl.TABLE_3["p1_p2"]
    tasks = ("invariant_lama", "new_lama_easy_p1", "new_lama_easy_p2")
    found = transfer.transfers(first["initial"], first["lora"], second["lora"], tasks)
    by_hand = {
        "backward_d0": 13.25 - 24.17,
        "backward_p1": 16.07 - 20.79,
        "backward": (13.25 - 24.17 + 16.07 - 20.79) / 2,
        "forward_p2": 13.93 - 9.45,
    }
    assert found == pytest.approx(by_hand)
    arrays = [
        {t: np.array([s[t], s[t] + 1]) for t in tasks}
        for s in (first["initial"], first["lora"], second["lora"])
    ]
    both = transfer.transfers(*arrays, tasks)["backward"]
    assert both == pytest.approx([by_hand["backward"]] * 2)


def test_transfer_beside_the_papers(tmp_path):
    tasks = ("invariant_lama", "new_lama_easy_p1", "new_lama_easy_p2")
    scores = {
        "initial": ([1, 1], [0, 0], [0, 0]),
        "p1": ([1, 0], [1, 1], [1, 0]),
        "p2": ([0, 0], [1, 0], [1, 1]),
    }
    rows = {
        k: [r for t, em in zip(tasks, v, strict=True) for r in probe(t, *em)]
        for k, v in scores.items()
    }
    initial = run(tmp_path / "initial", {9: rows["initial"]})
    first = run(tmp_path / "p1" / "lora", {9: rows["p1"]}, initial)
    second = run(tmp_path / "p2" / "lora", {9: rows["p2"]}, first)
    tables = [published_ckl.TABLE_3[name] for name in ("p1", "p1_p2")]
    part = transfer.compare_transfers(initial, [first], [second], tasks, tables)
    cells = part["rows"]["lora"]
    assert {name: c["ours"] for name, c in cells.items()} == {
        "backward_d0": -100,
        "backward_p1": -50,
        "backward": -75,
        "forward_p2": 50,
    }
    assert cells["forward_p2"]["paper"] == 4.48 and cells["backward_d0"]["low"] == -100
    table = experiment_tables.section("p2", part)
    assert table.headers[1:3] == ["backward, IL", "backward, NLE-P1"]
    assert table.rows[0][2].text == "-50.00 (-4.72)"


# --- light-tuning


def test_means_over_seeds_of_light_tuning(tmp_path):
    asked = {"initial": [(1, 1), (1, 0)], "vanilla": [(0, 1), (0, 0)]}
    folders = {
        model: {
            "invariant_lama": [
                run(tmp_path / model / f"i{s}", {9: probe("invariant_lama", *em)})
                for s, em in enumerate(seeds)
            ],
            "new_questions_easy": [
                run(tmp_path / model / f"q{s}", {9: probe("any", 0, s)}) for s in range(2)
            ],
        }
        for model, seeds in asked.items()
    }
    table = published_ckl.TABLE_10["gpt2_1e-4"]
    part = experiment_tables.compare_averaged(folders, ("new_questions_easy",), table)
    cells = part["rows"]["vanilla"]
    assert cells["invariant_lama"]["ours"] == 25 and cells["invariant_lama"]["paper"] == 35.88
    assert part["seeds"]["vanilla"]["new_questions_easy"] == [0, 50]
    assert cells["fuar"]["ours"] is None and part["fuar"] == "((IL), n.d., NQE)"
    assert "2 seeds" in part["notes"][0] and "50.00 points" in part["notes"][0]
    other = run(tmp_path / "other", {9: probe("any", 0, 1, 1)})
    with pytest.raises(UserError, match="different items"):
        experiment_tables.average_runs([folders["vanilla"]["new_questions_easy"][0], other])


# --- curves


@pytest.fixture
def study(tmp_path):
    initial = run(tmp_path / "initial", {30: probe("invariant_lama", 1, 1, 1, 0)})
    steps = {0: (1, 1, 1, 0), 3: (1, 1, 0, 0), 6: (0, 0, 1, 0)}
    rows = {
        step: probe("invariant_lama", *em, beams=2 if step < 6 else 10, rank=5)
        for step, em in steps.items()
    }
    vanilla = run(tmp_path / "vanilla", rows, initial)
    return load_study([initial, vanilla])


def test_lines_of_phases_go_on_where_the_phase_before_ended(study):
    (entry,) = study.methods
    line = experiment_curves.line_of("p1 → p2", [entry, entry], 75.0, (40, 50))
    assert line.points == [
        (0.0, 0, 75.0),
        (1.0, 3, 50.0),
        (2.0, 6, 25.0),
        (3.0, 9, 50.0),
        (4.0, 12, 25.0),
    ]
    assert line.forgotten == 50.0
    sections, numbers = experiment_curves.figure_3([line])
    assert [c.text for c in sections[1].rows[0]] == [
        "p1 → p2",
        "Vanilla",
        "40, 50",
        "4",
        "12",
        "75.00",
        "25.00",
        "50.00",
    ]
    assert sections[0].png[:4] == b"\x89PNG" and numbers["lines"][0]["key"] == "vanilla"


def test_figure_2_has_every_epoch_and_the_papers_last(study, tmp_path):
    made = experiment_curves.figure_2(study, published_ckl.TABLE_2["main"])
    path = write_markdown("ckl/figure2", "a title", *made, tmp_path)
    assert 'id="part-0"' in path.with_suffix(".html").read_text()
    text = path.read_text()
    assert "| Vanilla | 1 | 50.00 |" in text and "| Vanilla, the paper's last | 4 | 12.89 |" in text
    assert "](ckl-figure2.png)" in text and (tmp_path / "ckl-figure2.png").stat().st_size > 1000
    assert json.loads((tmp_path / "ckl-figure2.json").read_text())["initial"] == {
        "invariant_lama": 75.0
    }


def test_figure_9_reads_the_widest_search(study):
    sections, numbers = experiment_curves.figure_9(study)
    assert numbers["invariant_lama"]["vanilla"]["items"] == {1: 0.0, 5: 100.0, 10: 100.0}
    assert sections[1].headers[:3] == ["Method", "P@1", "P@5"]


def test_table_12_shows_what_modular_alone_gets_right(tmp_path):
    initial = run(tmp_path / "initial", {9: probe("new_lama", 0, 0, 1, 0)})

    def answers(name, *epochs):
        return run(
            tmp_path / name,
            {
                3 * n: [row("new_lama", i, em, said=f"{name}{em}") for i, em in enumerate(epoch)]
                for n, epoch in enumerate(epochs, 1 if name == "vanilla" else 0)
            },
            initial,
        )

    folders = [
        initial,
        answers("vanilla", (1, 1, 1, 1), (1, 0, 0, 0)),
        answers("modular", (1, 0, 0, 0), (0, 1, 1, 0), (1, 1, 1, 0)),
    ]
    sections, numbers = prediction_changes.table_12(load_study(folders), ["new_lama"])
    shown = [e["question"] for e in numbers["examples"]]
    assert shown == ["1 is ____.", "0 is ____."]  # what Vanilla misses comes first
    assert numbers["examples"][0]["predictions"]["Vanilla"] == ["vanilla1", "vanilla0"]
    assert sections[0].notes[0] == (
        "2 items that Modular gets right in the end and Initial did not; Vanilla gets 1 of them "
        "wrong."
    )
    assert numbers["changed"] == {
        "vanilla": {"new_lama": [None, 75.0]},
        "modular": {"new_lama": [75.0, 25.0]},
    }
    (tmp_path / "modular" / "probes" / "rows_000003.jsonl").unlink()
    with pytest.raises(UserError, match="Rows of probes are missing.*modular after the epochs"):
        prediction_changes.table_12(load_study(folders), ["new_lama"])


# --- answers


def test_types_of_answers(tmp_path):
    write_jsonl(
        tmp_path / "entities.jsonl", [{"id": "p1", "kind": "person"}, {"id": "c1", "kind": "city"}]
    )
    write_jsonl(tmp_path / "facts.jsonl", [{"relation": "mayor", "object": "p1"}])
    assert relation_kinds(tmp_path) == {"mayor": "person"} and relation_kinds("nowhere") == {}

    class Finder:
        backend = "a finder"

        def find(self, text):
            return [(text.index("Acme"), text.index("Acme") + 4, "ORG")] if "Acme" in text else []

    told = AnswerTypes.of_folder(tmp_path, Finder())
    assert told("mayor", "London") == "person"  # by the relation, whatever the answer
    assert told("P103", "French") == "language" and told("P19", "Paris") == "geographical"
    assert told("", "5 May 2020") == "date" and told("", "40,000 pounds") == "number"
    assert told("", "$2 million") == "number" and told("", "two") == "number"
    assert told("", "Acme", "She works at <extra_id_0>.") == "organization"
    assert told("", "blue", "Its colour is <extra_id_0>, says Acme.") == "other"
    assert AnswerTypes()("", "blue") == "unknown"
    assert "facts.jsonl" in told.how and "a finder" in told.how


def test_figure_8_adds_up_and_pairs_persons(tmp_path):
    def rows(probe_name, *items):
        return [
            row(probe_name, i, em, answers=(who,), relation=relation)
            for i, (who, relation, em) in enumerate(items)
        ]

    mayor, seat = "mayor", "P36"
    asked = rows(
        "updated_lama",
        ("Ada", mayor, 1),
        ("The Ada", mayor, 0),
        ("Bob", mayor, 1),
        ("Rome", seat, 1),
    ) + rows("new_lama", ("ada", mayor, 0), ("Cid", mayor, 1), ("Rome", seat, 0))
    initial = run(tmp_path / "initial", {9: asked})
    vanilla = run(tmp_path / "vanilla", {9: asked}, initial)
    sections, numbers = answer_analysis.figure_8(
        load_study([initial, vanilla]),
        AnswerTypes({mayor: "person"}),
        published_ckl.ANSWER_TYPES,
        published_ckl.SHARED_PERSONS,
    )
    assert numbers["contributions"]["updated_lama"] == {"person": 50.0, "geographical": 25.0}
    assert sum(numbers["contributions"]["new_lama"].values()) == pytest.approx(100 / 3)
    assert numbers["shared_persons"]["vanilla"] == (1, 100.0, 0.0)  # Ada's first item of either
    first = [cell.text for cell in sections[0].rows[0]]
    assert first == ["person", "75.0 (61.47)", "66.7 (59.7)"]


def test_mentions_are_whole_words_of_every_corpus():
    texts = ["The Ada Byron. ADA BYRON met Ada.", "Adam"]
    found = count_mentions(["Ada", "Ada Byron", "the"], {"d0": texts, "d1": []})
    assert found == {
        "d0": {"Ada": 3, "Ada Byron": 2, "the": 0},
        "d1": {"Ada": 0, "Ada Byron": 0, "the": 0},
    }


def test_overlap_counts_answers_and_shows_em_by_mentions(study, tmp_path):
    corpus = tmp_path / "news.csv"
    corpus.write_text(
        "input,output\n<extra_id_0> won.,<extra_id_0> Ada Byron <extra_id_1>\n"
        "Ada Byron <extra_id_0>.,<extra_id_0> won <extra_id_1>\n"
    )
    assert list(corpus_texts(corpus)) == ["Ada Byron won."]
    corpora = {"d0": lambda: [], "d1": lambda: corpus_texts(corpus)}
    sections, numbers = answer_analysis.overlap(study, corpora)
    assert numbers["mentions"]["invariant_lama"]["d1"] == {"items": 4, "named": 4, "median": 1.0}
    assert numbers["mentions"]["invariant_lama"]["d0"]["named"] == 0
    assert [c.text for c in sections[1].rows[0]] == ["InvariantLAMA", "–", "4, 25.00", "–", "–"]


def test_overlap_of_a_folder(tmp_path, capsys):
    (tmp_path / "invariantLAMA.csv").write_text(
        "id,input,output\n1,<extra_id_0> won.,Ada\n2,<extra_id_0> lost.,Bob\n"
    )
    texts = {"recent_news_full.csv": "Ada won", "wikipedia_pretrain_small.csv": "nobody"}
    for name, text in texts.items():
        (tmp_path / name).write_text(f"input,output,original\na,b,{text}\n")
    assert main(["overlap", str(tmp_path), "--probes", "invariant_lama"]) == 0
    told = capsys.readouterr().out
    assert "InvariantLAMA" in told and "50.00" in told
    assert main(["overlap", str(tmp_path), "--corpora", "d9"]) == 2
    assert main(["overlap", str(tmp_path / "nowhere")]) == 2
    assert capsys.readouterr().err.count("\n") == 2
