"""LM-PUB-QUIZ's claims hold of a stream that forgets by one way to ask, and fail of its reverse."""

import numpy as np
import pytest

from ckl_jax.cli.ckl import main
from ckl_jax.files import read_json, write_json, write_jsonl
from ckl_jax.papers.lm_pub_quiz.analysis import claims
from ckl_jax.papers.lm_pub_quiz.ranking_results import DatasetResults, RelationResult

_NAMES = ("initial", "experience_1", "experience_2")
# Of 100 facts, how many are known by ranking and by mask filling.
LAST = "after the last experience mask filling has fallen further than ranking"
LIKE_PAPER, TURNED = ((80, 60, 40), (60, 20, 4)), ((40, 50, 60), (50, 80, 90))


def write_stream(root, seed, known=LIKE_PAPER):
    """A folder of `ckl stream` in which `known` facts are known at each point."""
    order = np.random.default_rng(seed).permutation(100)
    for name, ranked, filled in zip(_NAMES, *known, strict=True):
        right = order < ranked
        rows = [
            {"sub_id": f"Q{i}", "sub_label": f"s{i}", "answer_idx": 0, "template_index": 0}
            for i in range(100)
        ]
        scores = np.where(right[:, None], [[-1.0, -2.0]], [[-2.0, -1.0]])
        info = {"answer_space_ids": ["Q1", "Q2"], "answer_space_labels": ["a", "b"]}
        results = DatasetResults("quiz", [RelationResult("P1", rows, scores, info)])
        results.save(root / name / "ranking" / "quiz" / "000010")
        asked = [
            {"relation": "P1", "sub_id": f"Q{i}", "template": 0, "rank": int(order[i] >= filled)}
            for i in range(100)
        ]
        write_jsonl(root / name / "mask_filling" / "quiz" / "000010.jsonl", asked)
    write_json(root / "trajectories.json", {"dataset": "quiz", "scores": dict.fromkeys(_NAMES, {})})
    write_json(root / "stream.json", {"seed": seed, "size": "tiny", "documents": None})
    return root


def _rows(folders, out):
    assert main(["claims", *map(str, folders), "--out", str(out), "--samples", "200"]) == 0
    return {row["claim"]: row for row in read_json(out / "claims.json")["claims"]}


def test_streams_like_the_papers_and_turned_round(tmp_path):
    like = [write_stream(tmp_path / f"like-{seed}", seed) for seed in range(5)]
    rows = _rows(like, tmp_path / "yes")
    assert {row["verdict"] for row in rows.values()} == {"yes"}
    after = rows["after one experience mask filling has fallen further than ranking"]
    assert after["mean"] == pytest.approx(100 * 60 / 80 - 100 * 20 / 60)
    assert after["paper"] == pytest.approx(72.37 - 24.12)
    turned = [write_stream(tmp_path / f"turned-{seed}", seed, TURNED) for seed in range(5)]
    assert {row["verdict"] for row in _rows(turned, tmp_path / "no").values()} == {"no"}
    few = _rows(like[:4], tmp_path / "few")
    assert {(row["verdict"], row["seeds_needed"]) for row in few.values()} == {("undecided", 5)}
    assert all(claim.paper > 0 for claim in claims.CLAIMS)


def test_nothing_is_known_of_what_was_not_known_at_the_start(tmp_path):
    folder = write_stream(tmp_path, 0, ((80, 60, 40), (0, 0, 0)))
    rows = _rows([folder], tmp_path)
    assert rows[LAST]["mean"] is None


def test_a_stream_that_is_not_done(tmp_path, capsys):
    folder = write_stream(tmp_path, 0)
    path = folder / "experience_2" / "mask_filling" / "quiz" / "000010.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:50]))
    assert main(["claims", str(folder)]) == 2
    assert "were not put to the same facts" in capsys.readouterr().err
    (folder / "trajectories.json").unlink()
    assert main(["claims", str(folder)]) == 2
    assert "has no trajectories yet" in capsys.readouterr().err
