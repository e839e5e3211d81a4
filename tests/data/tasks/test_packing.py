"""Packed rows: what they hold, and that their examples count as they do alone."""

import dataclasses

import jax
import numpy as np
import pytest

from ckl_jax.data.facts.ckl_files import CORPORA
from ckl_jax.data.tasks.cached import write_cached
from ckl_jax.data.tasks.converters import converter_of, encoder_decoder_batch, pad_rows
from ckl_jax.data.tasks.packing import SEGMENTS, pack, row_features
from ckl_jax.data.tasks.prepare import prepare_ckl
from ckl_jax.errors import UserError
from ckl_jax.train.configs import DatasetConfig
from tests.helpers import TINY, TINY_T5GEMMA, method_of, model_of, random_params

FEATURES = ("inputs", "targets")


def test_no_piece_is_split():
    pieces = [[1, 2], [3], [4, 5, 6], [7, 8, 9, 10]]
    assert list(pack(({"targets": piece} for piece in pieces), {"targets": 4})) == [
        {"targets": [1, 2, 3], "segments": [1, 1, 2]},
        {"targets": [4, 5, 6], "segments": [1, 1, 1]},
        {"targets": [7, 8, 9, 10], "segments": [1, 1, 1, 1]},
    ]


def test_a_pair_needs_room_in_both_features():
    pairs = [([1, 2], [3]), ([4], [5, 6]), ([7], [8]), ([9, 10, 11], [12])]
    rows = pack(({"inputs": i, "targets": t} for i, t in pairs), {"inputs": 4, "targets": 3})
    assert list(rows) == [
        {
            "inputs": [1, 2, 4],
            "input_segments": [1, 1, 2],
            "targets": [3, 5, 6],
            "segments": [1, 2, 2],
        },
        {
            "inputs": [7, 9, 10, 11],
            "input_segments": [1, 2, 2, 2],
            "targets": [8, 12],
            "segments": [1, 2],
        },
    ]


def test_every_example_of_a_batch_begins_with_the_start_token():
    batch = encoder_decoder_batch(
        np.array([[5, 1, 6, 1, 0]]),
        np.array([[7, 8, 1, 9, 1, 0]]),
        None,
        np.array([[1, 1, 2, 2, 0]]),
        np.array([[1, 1, 1, 2, 2, 0]]),
    )
    assert batch["decoder_input_tokens"].tolist() == [[0, 7, 8, 0, 9, 0]]
    assert batch["decoder_loss_weights"].tolist() == [[1, 1, 1, 1, 1, 0]]
    assert batch["encoder_segment_ids"].tolist() == [[1, 1, 2, 2, 0]]
    assert batch["decoder_segment_ids"].tolist() == [[1, 1, 1, 2, 2, 0]]


@pytest.mark.parametrize(
    ("base", "name"),
    [
        (TINY, "modular"),
        pytest.param(TINY, "k_adapter_k2", marks=pytest.mark.slow),
        pytest.param(TINY, "lora", marks=pytest.mark.slow),
        (TINY_T5GEMMA, "vanilla"),
    ],
    ids=["t5-modular", "t5-k_adapter", "t5-lora", "t5gemma"],
)
def test_the_loss_of_packed_examples_is_theirs_alone(base, name):
    config = method_of(name, base).extend(base)
    model, params, rng = model_of(config), random_params(config), np.random.RandomState(0)
    lengths = {"inputs": 12, "targets": 8}
    examples = [
        {n: [*rng.randint(3, 60, rng.randint(1, 5)), 1] for n in FEATURES} for _ in range(7)
    ]

    @jax.jit
    def summed(batch):
        return model.loss_fn(params, batch, None)[0]

    def loss(rows):
        x = {
            n: pad_rows([r[n] for r in rows], lengths["inputs" if n[:5] == "input" else "targets"])
            for n in rows[0]
        }
        batch = converter_of(FEATURES)(x, {}, np.ones(len(rows), bool))
        return float(summed(batch))

    packed = list(pack(examples, lengths))
    assert len(packed) < len(examples)
    assert loss(packed) == pytest.approx(loss(examples), rel=1e-5)


def test_packed_tasks_are_read_whole_and_kept_apart_from_others(tmp_path):
    lines = [f"a <extra_id_0> of {i},<extra_id_0> b <extra_id_1>,a b of {i}" for i in range(9)]
    corpus = tmp_path / CORPORA["d1"]
    corpus.parent.mkdir(parents=True, exist_ok=True)
    corpus.write_text("\n".join(["input,output,original", *lines]) + "\n")
    lengths = {"inputs": 24, "targets": 20}
    made = prepare_ckl(tmp_path, tmp_path / "out", 40, lengths, packed=True)
    task = made.open("d1")
    assert task.features == [*row_features(FEATURES, packed=True)]
    assert len(task) < 9
    counts = {
        name: sum(max(task.row(i)[name]) for i in range(len(task))) for name in SEGMENTS.values()
    }
    assert counts == {"input_segments": 9, "segments": 9}
    with pytest.raises(UserError, match="was made with packed = True, not False"):
        prepare_ckl(tmp_path, tmp_path / "out", 40, lengths)

    def reading(**lengths):
        of = DatasetConfig(
            mixture_or_task_name="d1",
            task_feature_lengths=lengths,
            batch_size=2,
            cache_dirs=(str(tmp_path / "out" / "tasks"),),
        )
        return of.reading(model_of(TINY), [task])[1]

    read = {"inputs": 24, "input_segments": 24, "targets": 30, "segments": 30}
    assert reading(inputs=24, targets=30) == read
    longest = max(len(task.row(i)["inputs"]) for i in range(len(task)))
    assert reading(inputs=longest, targets=30)
    with pytest.raises(UserError, match="has packed rows that are longer than .*; read them whole"):
        reading(inputs=longest - 1, targets=30)


def test_rows_that_are_cut_are_told_of_where_much_is_left_out(tmp_path, capsys):
    write_cached(tmp_path / "long", [{"inputs": [3] * 9, "targets": [3, 1]}] * 4)
    config = DatasetConfig(
        mixture_or_task_name=str(tmp_path / "long"),
        task_feature_lengths={"inputs": 9, "targets": 2},
        batch_size=2,
    )
    task = config.open(config.mixture_or_task_name)
    config.reading(model_of(TINY), [task])
    assert capsys.readouterr().err == ""
    shorter = dataclasses.replace(config, task_feature_lengths={"inputs": 4, "targets": 2})
    shorter.reading(model_of(TINY), [task])
    assert "56% of the tokens of 'inputs' in" in capsys.readouterr().err
