"""Updates one after the other: what is reviewed, how the schedule goes on, and what is refused."""

import json

import numpy as np
import pytest

from ckl_jax.cli import t5x
from ckl_jax.data.tasks.cached import CachedTask
from ckl_jax.errors import UserError
from ckl_jax.methods.mix_review import mix_review
from ckl_jax.methods.replay import replay
from ckl_jax.train.configs import DatasetConfig
from ckl_jax.train.restore import steps_before


class Model:
    task_features = ("inputs", "targets")

    class output_vocabulary:
        pad_id, digest = 0, None


def source(tiny, method, **options):
    config = DatasetConfig(
        mixture_or_task_name="p2",
        task_feature_lengths={"inputs": 16, "targets": 9},
        batch_size=8,
        replay_task_name="d0_small",
        cache_dirs=(str(tiny.tasks),),
        **options,
    )
    return config.make_source(method, epochs=2, total_steps=None, seed=0, model=Model())


def test_mix_review_has_all_of_the_first_phase_in_every_epoch_of_the_second(tiny):
    p1, p2 = (len(CachedTask.open(tiny.tasks / name)) for name in ("p1", "p2"))
    plan = source(tiny, mix_review(), review_task_name="p1").plan
    share = [int(4 * 0.7**e * p2) for e in range(2)]
    old = len(CachedTask.open(tiny.tasks / "d0_small"))
    assert [plan.epoch_rows(e) for e in range(2)] == [p1 + p2 + min(n, old) for n in share]
    assert source(tiny, mix_review()).plan.review == 0
    for other in (replay(), mix_review(review_phases=False)):
        assert source(tiny, other, review_task_name="p1").plan.review == 0
    batches = source(tiny, mix_review(), review_task_name="p1")
    rows = [CachedTask.open(tiny.tasks / "p1").row(i)["targets"] for i in range(p1)]
    seen = {
        tuple(r[r > 0])
        for step in range(plan.steps_per_epoch[0])
        for r in np.asarray(batches[step]["decoder_target_tokens"])
    }
    assert all(tuple(row[:9]) in seen for row in rows)


def test_a_wrong_task_is_told_which_there_are(tiny):
    lengths = {"inputs": 16, "targets": 9}
    config = DatasetConfig(
        mixture_or_task_name="d1_smal",
        task_feature_lengths=lengths,
        batch_size=8,
        cache_dirs=(str(tiny.tasks), "nowhere"),
    )
    with pytest.raises(UserError, match="which hold .*d1, d1_small, .* mean 'd1_small'"):
        config.open(config.mixture_or_task_name)


def test_a_phase_that_names_a_missing_checkpoint_is_refused(tiny, tmp_path, capsys):
    argv = tiny.argv(
        "lora",
        tmp_path / "p2",
        "experiments/ckl/p1_p2.gin",
        INITIAL_CHECKPOINT_PATH=str(tmp_path / "p1"),
    )
    assert t5x.main(["train", *argv]) == 2
    told = capsys.readouterr().err.strip().splitlines()[-1]
    assert told == (
        f"t5x: No checkpoint at {tmp_path / 'p1'}: no such folder; give a MODEL_DIR or a "
        "checkpoint in it."
    )
    assert not (tmp_path / "p2" / "checkpoint_1").exists()


def test_a_second_phase_of_a_model_without_a_first_is_refused(tiny, tmp_path, capsys):
    argv = tiny.argv(
        "lora",
        tmp_path / "p2",
        "experiments/ckl/p1_p2.gin",
        INITIAL_CHECKPOINT_PATH=str(tiny.root / "initial"),
    )
    assert t5x.main(["train", *argv, "--gin.lora.lora.phase=1"]) == 2
    told = capsys.readouterr().err.strip().splitlines()[-1]
    assert "/lora_0/a" in told and "which an earlier phase of the method adds; give the" in told
    assert not (tmp_path / "p2" / "checkpoint_0").exists()


@pytest.mark.slow
def test_the_schedule_goes_on_over_phases(tiny, tmp_path, capsys):
    initial = tiny.root / "initial"
    assert steps_before(None) == steps_before(str(initial)) == 0
    rates, before = [], initial
    for name, after in (("p1", 6), ("p2", 0)):
        macros = {
            "PROBES": None,
            "TRAIN_STEPS": 6,
            "INITIAL_CHECKPOINT_PATH": str(before),
            "STEPS_AFTER": after,
            "MIXTURE_OR_TASK_NAME": name,
        }
        argv = tiny.argv("vanilla", tmp_path / name, "ckl_continued.gin", **macros)
        argv.append("--gin_bindings=train.train.log_period = 1")
        assert t5x.main(["train", *argv]) == 0, capsys.readouterr().err
        lines = (tmp_path / name / "metrics.jsonl").read_text().splitlines()
        found = [json.loads(line) for line in lines]
        rates += [row["learning_rate"] for row in found if row["split"] == "train"]
        before = tmp_path / name
    assert len(rates) == 12 and steps_before(str(before)) == 12
    assert rates[0] == pytest.approx(2e-3) and rates[-1] == pytest.approx(1e-3)
    assert (np.diff(rates) < 0).all()  # no second warm-up


def test_steps_before_of_a_missing_checkpoint(tmp_path):
    with pytest.raises(UserError, match="No checkpoint at"):
        steps_before(str(tmp_path / "nowhere"))
