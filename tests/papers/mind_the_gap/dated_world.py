"""A tiny dated task, vocabulary and checkpoint for tests of dynamic evaluation."""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental.compilation_cache import compilation_cache

from ckl_jax.checkpoints.store import CheckpointStore
from ckl_jax.data.tasks.dated_task import DatedTask, prepare_dated
from ckl_jax.data.tasks.word_losses import read_dump
from ckl_jax.data.text.documents import Document
from ckl_jax.papers.mind_the_gap.dynamic_eval.dynamic_eval import dynamic_eval
from ckl_jax.papers.mind_the_gap.dynamic_eval.runner import StreamConfig, UpdateConfig
from ckl_jax.parallel.processes import COMPILED_FOR_THIS_CPU
from ckl_jax.train.configs import RestoreCheckpointConfig


@contextlib.contextmanager
def compiled_once(folder: Path) -> Iterator[None]:
    """What is compiled in this block is kept in a folder: runs of the same settings share it."""
    keys = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    before = [getattr(jax.config, key) for key in keys]
    os.environ[COMPILED_FOR_THIS_CPU] = str(folder)
    compilation_cache.reset_cache()
    try:
        yield
    finally:
        del os.environ[COMPILED_FOR_THIS_CPU]
        for key, value in zip(keys, before, strict=True):
            jax.config.update(key, value)
        compilation_cache.reset_cache()


class Letters:
    """A word's tokens are its letters."""

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
    def make(cls, root: Path, make_model: Callable, count: int = 12) -> "World":
        letters = Letters()
        model = make_model(letters)
        params = jax.jit(model.init)(jax.random.key(0))["params"]
        with CheckpointStore(str(root / "base")) as store:
            store.save(7, {"params": params}, {"vocabulary_digest": letters.digest})
        prepare_dated(documents(count), root / "test", letters)
        prepare_dated(documents(6, 1, "2016-11"), root / "past", letters)
        return cls(root, model, params)

    def run(self, name: str, *, rate: float = 0.1, checkpoint: str = "base", **settings) -> Path:
        """Evaluates into a folder; settings are those of the job and its two records."""
        own = {f.name for f in dataclasses.fields(UpdateConfig)}
        updates = {k: settings.pop(k) for k in own & settings.keys()}
        reads = {f.name for f in dataclasses.fields(StreamConfig)}
        stream = {k: settings.pop(k) for k in reads & settings.keys()}
        job = {
            "model": self.model,
            "mixture_or_task_name": str(self.root / "test"),
            "progress": "silent",
            **settings,
        }
        dynamic_eval(
            restore_checkpoint_cfg=RestoreCheckpointConfig(path=str(self.root / checkpoint)),
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


def by_hand(
    world: World, steps: int = 1, rate: float = 0.1, chunk: int = 8, memory: int | None = None
) -> np.ndarray:
    """Losses of words by SGD on the mean loss of each chunk, written as plain loops."""
    params, out, task = world.params, [], DatedTask.open(world.root / "test")

    @jax.jit
    def both(params, batch, memory):
        def mean(params):
            losses, after = world.model.stream_losses(params, batch, memory)
            weights = batch["decoder_loss_weights"]
            return (losses * weights).sum() / weights.sum(), (losses[0], after)

        return jax.value_and_grad(mean, has_aux=True)(params)

    for number in range(len(task)):
        row = task.task.row(number)
        before, found, before_chunk = 1, [], world.model.initial_memory(1, memory)
        for start in range(0, len(row["targets"]), chunk):
            part = row["targets"][start : start + chunk]
            tokens = np.zeros((1, chunk + 1), np.int32)
            tokens[0, : len(part) + 1] = [before, *part]
            real = (np.arange(chunk) < len(part))[None].astype(np.int32)
            batch = {
                "decoder_input_tokens": tokens[:, :-1],
                "decoder_target_tokens": tokens[:, 1:],
                "decoder_loss_weights": real.astype(np.float32),
                "decoder_segment_ids": real,
            }
            for k in range(steps):
                (_, (each, after)), grads = both(params, batch, before_chunk)
                if k == 0:
                    found += each[: len(part)].tolist()
                    new_memory = after
                params = jax.tree.map(lambda p, g: p - rate * g, params, grads)
            before, before_chunk = part[-1], new_memory
        ends = np.cumsum(row["tokens_per_word"])
        out += [sum(found[a:b]) for a, b in zip([0, *ends], ends, strict=False)]
    return np.array(out)
