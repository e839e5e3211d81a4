"""A tiny dated task, vocabulary and checkpoint for tests of dynamic evaluation."""

import dataclasses
import functools
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

from ckl_jax.checkpoints.store import CheckpointStore
from ckl_jax.data.dated_task import prepare_dated
from ckl_jax.data.documents import Document
from ckl_jax.data.word_losses import read_dump
from ckl_jax.jobs.configs import RestoreCheckpointConfig
from ckl_jax.jobs.dynamic_eval import dynamic_eval
from ckl_jax.jobs.stream_runner import StreamConfig, UpdateConfig
from tests.helpers import TINY_GPT2, model_of


class Letters:
    """A word's pieces are its letters."""

    pad_id, eos_id, vocab_size, digest = 0, 1, 30, "letters" * 9

    def encode_many(self, texts):
        return [[2 + ord(c) - ord("a") for c in text.strip()] for text in texts]


def documents(count: int, seed: int = 0, start: str = "2018-01") -> list[Document]:
    """Documents of 1 to 20 words over several months, five of them in each."""
    rng = np.random.default_rng(seed)
    year, month = map(int, start.split("-"))
    found = []
    for i in range(count):
        months = month - 1 + i // 5
        date = f"{year + months // 12}-{1 + months % 12:02}-{1 + i % 5:02}"
        words = ["".join(rng.choice(list("abcdef"), rng.integers(1, 5))) for _ in range(20)]
        found.append(Document(f"id{i}", date, "", " ".join(words[: rng.integers(1, 21)])))
    return found


@dataclasses.dataclass(frozen=True)
class World:
    """A folder with a checkpoint and a task."""

    root: Path
    model: Any
    params: Any

    @classmethod
    def make(cls, root: Path, config=TINY_GPT2, count: int = 12) -> "World":
        config = dataclasses.replace(config, dropout_rate=0.1)
        letters = Letters()
        two = ("input_vocabulary", "output_vocabulary")
        fields = dict.fromkeys(two if hasattr(config, "num_encoder_layers") else ["vocabulary"])
        model = model_of(config, **dict.fromkeys(fields, letters))
        params = jax.tree.map(lambda x: 3 * x, model.init(jax.random.key(0))["params"])
        with CheckpointStore(str(root / "base")) as store:
            store.save(7, {"params": params}, {"vocabulary_digest": letters.digest})
        prepare_dated(documents(count), root / "test", letters)
        prepare_dated(documents(6, 1, "2016-11"), root / "past", letters)
        return cls(root, model, params)

    def run(self, name: str, *, rate: float = 0.1, **settings) -> Path:
        """Evaluates into a folder; settings are those of the job and its two records."""
        own = {f.name for f in dataclasses.fields(UpdateConfig)}
        updates = {k: settings.pop(k) for k in own & settings.keys()}
        reads = {f.name for f in dataclasses.fields(StreamConfig)}
        stream = {k: settings.pop(k) for k in reads & settings.keys()}
        job = {
            "model": self.model, "mixture_or_task_name": str(self.root / "test"),
            "progress": "silent", **settings,
        }  # fmt: skip
        dynamic_eval(
            restore_checkpoint_cfg=RestoreCheckpointConfig(str(self.root / "base")),
            output_dir=str(self.root / name),
            updates=UpdateConfig(**{"learning_rate": rate, **updates}),
            stream=StreamConfig(**{"chunk_len": 8, "block_rows": 4, **stream}),
            **job,
        )
        return self.root / name


def losses(folder: Path) -> np.ndarray:
    """The losses of all words of a dump."""
    return np.concatenate([shard.nll for shard in read_dump(folder / "dump")])


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def by_hand(world: World, task: Any, steps: int, rate: float, chunk: int) -> np.ndarray:
    """Losses of words by one SGD step for each chunk, written as plain loops."""
    params, out = world.params, []

    @functools.partial(jax.jit, static_argnums=2)
    def both(params, tokens, size):
        def mean(params):
            batch = {"decoder_input_tokens": tokens[:, :-1], "decoder_target_tokens": tokens[:, 1:]}
            logits = world.model.logits(params, batch)
            each = optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:])
            return each.mean(), each[0]

        return jax.value_and_grad(mean, has_aux=True)(params)

    for number in range(len(task)):
        row = task.task.row(number)
        before, found = 1, []
        for start in range(0, len(row["targets"]), chunk):
            part = row["targets"][start : start + chunk]
            tokens = np.array([[before, *part]], np.int32)
            for k in range(steps):
                (_, each), grads = both(params, tokens, len(part))
                if k == 0:
                    found += each.tolist()
                params = jax.tree.map(lambda p, g: p - rate * g, params, grads)
            before = part[-1]
        ends = np.cumsum(row["pieces_per_word"])
        out += [sum(found[a:b]) for a, b in zip([0, *ends], ends, strict=False)]
    return np.array(out)
