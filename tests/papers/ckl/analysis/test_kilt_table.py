"""Table 8's numbers out of rows: each data set by its own metric, beside the paper's."""

import json

import pytest

from ckl_jax.analysis.changes import all_facts
from ckl_jax.errors import UserError
from ckl_jax.papers.ckl.analysis import experiment_tables

SCORES = {
    "initial": {"nq": [1, 0, 0, 0], "eli5": [0.5, 0.1]},
    "lora": {"nq": [1, 1, 0, 1], "eli5": [0.2, 0.2]},
}
METRIC = {"nq": "em", "eli5": "rouge_l"}


def write(root, probe, method, items=None):
    folder = root / probe / method
    rows = [
        {
            "probe": probe,
            "item": str(items[i] if items else i),
            "step": 9,
            "epoch": 1,
            "em": 0,
            "f1": 0.0,
            "predictions": ["x"],
            "answers": ["y"],
            "old_answers": [],
            "cut": int(i == 0),
            "metric": METRIC[probe],
            "score": score,
        }
        for i, score in enumerate(SCORES[method][probe])
    ]
    (folder / "probes").mkdir(parents=True)
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "probes" / "rows_000009.jsonl").write_text(text)
    (folder / "summary.json").write_text(json.dumps({"run": method, "base_checkpoint": "b"}))
    return folder


def test_means_and_notes(tmp_path):
    folders = [[write(tmp_path, probe, method) for method in SCORES] for probe in METRIC]
    published = {"lora": {"nq": 25.49, "eli5": 13.42}}
    part = experiment_tables.compare_tuned(folders, published)
    ours = {
        row: {p: cell["ours"] for p, cell in cells.items()} for row, cells in part["rows"].items()
    }
    assert ours == {
        "initial": {"nq": 25, "eli5": pytest.approx(30)},
        "lora": {"nq": 75, "eli5": pytest.approx(20)},
    }
    cell = part["rows"]["lora"]["eli5"]
    assert (cell["paper"], cell["low"], cell["high"]) == (13.42, *(pytest.approx(20),) * 2)
    assert not part["rows"]["initial"]["nq"]["printed"] and part["metrics"] == METRIC
    assert part["notes"][0] == "nq: 1 of 4 evaluated records have no answer that fits."
    path = experiment_tables.write_tables("ckl/x", "a title", {"kilt": part}, tmp_path)
    text = path.read_text()
    assert (
        "| NQ EM, n = 4 | ELI5 R-L, n = 2 |" in text
        and "20.00 (13.42)" in text
        and text.endswith("fits.\n")
    )


def test_the_page_says_what_came_out_and_shows_every_record(tmp_path):
    folders = [[write(tmp_path, probe, method) for method in SCORES] for probe in METRIC]
    study = experiment_tables.joined_study(folders)
    sizes, found, asked = experiment_tables.overview_of_tuned(study)
    assert sizes == "2 models, fine-tuned, on nq (4), eli5 (2)."
    # 75 above 25, 20 below 30.
    assert found == "Higher than without an update: LoRA on 1 of 2 data sets."
    assert "“0” (y)" in asked
    # A data set that the Initial model lacks, and the Initial model alone.
    lacking = experiment_tables.joined_study([folders[0], folders[1][1:]])
    said = experiment_tables.overview_of_tuned(lacking)
    assert "LoRA on 1 of 1 data set." in said[1]
    alone = experiment_tables.joined_study([folders[0][:1]])
    assert len(experiment_tables.overview_of_tuned(alone)) == 2
    facts = all_facts(study)
    assert facts.headers == ["Question and answer", "Probe", "Initial", "LoRA"]
    assert [row[1].text for row in facts.rows] == ["nq"] * 4 + ["eli5"] * 2


def test_other_items_are_refused(tmp_path):
    folders = [[write(tmp_path, "nq", "initial"), write(tmp_path, "nq", "lora", "abcd")]]
    with pytest.raises(UserError, match="different items of nq"):
        experiment_tables.compare_tuned(folders, {})
