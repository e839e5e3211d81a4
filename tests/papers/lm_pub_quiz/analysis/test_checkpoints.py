"""Facts along checkpoints against counting by hand, and by command."""

import json
import shutil

import numpy as np
import pytest

from ckl_jax.cli import ckl
from ckl_jax.papers.lm_pub_quiz.analysis import checkpoints
from tests.papers.lm_pub_quiz.analysis.test_comparison import fractions, results
from tests.papers.lm_pub_quiz.test_probe import golden  # noqa: F401 (a fixture)


def test_facts_are_counted_as_by_hand(tmp_path):
    models = {f"step {i}": results(i, lift=i / 2) for i in range(4)}
    page, found = checkpoints.write_curves(models, tmp_path)
    known = [
        {(c, i) for c in ("P1", "P2") for i, x in enumerate(fractions(m, c)) if x > 0.5}
        for m in models.values()
    ]
    for i, x in enumerate(found):
        before = known[max(0, i - 1)]
        counts = len(known[i]), len(known[i] - before), len(before - known[i])
        assert (x["known"], x["learned"], x["forgotten"]) == counts
        assert x["known_since"] == len(known[i] - known[0])
        still = 100 * len(known[i] & known[0]) / len(known[0])
        assert x["still_known"]["value"] == pytest.approx(still)
        assert x["still_known"]["low"] <= still <= x["still_known"]["high"]
    first = np.array([(c, i) in known[0] for c, n in (("P1", 40), ("P2", 25)) for i in range(n)])
    both = first & [(c, i) in known[3] for c, n in (("P1", 40), ("P2", 25)) for i in range(n)]
    drawn = np.random.default_rng(5).integers(65, size=(20_000, 65))
    low, high = np.nanpercentile(100 * both[drawn].sum(1) / first[drawn].sum(1), [2.5, 97.5])
    x = found[3]["still_known"]
    assert (x["low"], x["high"]) == (pytest.approx(low, abs=3), pytest.approx(high, abs=3))
    text = page.read_text()
    assert f"{len(known[3])} of 65 facts are known at step 3, {len(known[0])} at step 0" in text
    assert f"{len(known[0] - known[3])} forgotten" in text


def test_half_of_the_templates_is_not_known():
    model = results(0, lift=1.0, templates=2)
    right = [(r.scores.argmax(1) == r.answers).reshape(-1, 2).sum(1) for r in model]
    assert any((r == 1).any() for r in right)
    (found, _) = checkpoints.measure({"a": model, "b": model})
    assert found["known"] == sum(int((r == 2).sum()) for r in right)


@pytest.mark.slow
def test_checkpoints_of_a_run_and_of_a_family(golden, tmp_path, capsys):  # noqa: F811
    run = tmp_path / "run"
    argv = ["import-hf", "--model", str(golden / "model"), "--out", str(run)]
    assert ckl.main(argv) == 0
    data = ["--dataset", str(golden / "dataset"), "--templates", "0"]
    assert ckl.main(["probe", "checkpoints", "--model", str(run), *data]) == 2
    assert "1 checkpoints; give a MODEL_DIR with two or more" in capsys.readouterr().err
    shutil.copytree(run / "checkpoint_0", run / "checkpoint_5")
    argv = ["probe", "checkpoints", "--model", str(run), *data]
    assert ckl.main(argv) == 0
    found = json.loads((run / "checkpoints" / "checkpoints.json").read_text())
    assert [x["name"] for x in found] == ["step 0", "step 5"]
    assert found[1]["known"] == found[0]["known"] > 0 and found[1]["learned"] == 0
    family = [f"--model=a={run}", f"--model=b={golden / 'model'}", "--out", str(tmp_path / "out")]
    assert ckl.main(["probe", "checkpoints", *family, *data]) == 0
    other = json.loads((tmp_path / "out" / "checkpoints.json").read_text())
    assert [x["known"] for x in other] == [x["known"] for x in found]
