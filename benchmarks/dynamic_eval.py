"""Dynamic evaluation of all parameters, of biases and of embeddings against the static pass.

Run it as `python -m benchmarks.dynamic_eval`. All contestants read the same text through the step
that `t5x dynamic_eval` runs, and take turns; the ratio is that of each one's best round.
"""

import argparse
import os
import sys

from benchmarks import measure
from ckl_jax.errors import UserError

MASKS = ("none", "all", "bias", "embedding")
TARGETS = {"all": 3.2, "bias": 2.3}


class Contestant:
    """A model that reads the same chunks again and again under one mask.

    Args:
      architecture: "gpt2" or "transformer_xl".
      mask: see `methods.subsets`.
      chunk: T.
      chunks: of one call.
      size: {"emb_dim", "num_layers", "vocab_size"}.
    """

    def __init__(self, architecture: str, mask: str, chunk: int, chunks: int, size: dict):
        import jax
        import numpy as np
        import optax

        from ckl_jax.methods.subsets import patterns_of
        from ckl_jax.papers.mind_the_gap.dynamic_eval.runner import (
            StreamConfig,
            StreamRunner,
            UpdateConfig,
        )
        from ckl_jax.parallel.mesh import Partitioner
        from ckl_jax.trees.partition import split
        from ckl_jax.trees.paths import flatten

        model = make_model(architecture, chunk, size)
        params = jax.jit(model.init)(jax.random.key(0))["params"]
        patterns = patterns_of(mask, list(flatten(params)))
        trainable, self.frozen = split(params, patterns) if patterns else ({}, params)
        stream = StreamConfig(chunk_len=chunk, block_rows=chunks, lengths=1).for_model(model)
        shapes = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding),
            (trainable, self.frozen),
        )
        updates = UpdateConfig(learning_rate=1e-4)
        tx = optax.sgd(1e-4) if patterns else None
        runner = StreamRunner(model, *shapes, stream, updates, tx, Partitioner())
        self._compiled, self.state = runner._compiled, runner.start(trainable)
        rng = np.random.default_rng(0)
        tokens = rng.integers(2, size["vocab_size"], (chunks, 1, chunk + 1)).astype(np.int32)
        begins = np.arange(chunks)[:, None] % 2 == 0  # documents of two chunks
        self.rows = {
            "tokens": tokens,
            "lengths": np.full((chunks, 1), chunk, np.int32),
            "begins": begins,
            "bucket": np.zeros(chunks, np.int32),
        }
        self.count = np.int32(chunks)

    def __call__(self) -> None:
        self.state, losses = self._compiled(self.state, self.frozen, self.rows, self.count)
        losses.block_until_ready()


class _Vocabulary:
    eos_id, pad_id = 1, 0

    def __init__(self, vocab_size: int):
        self.vocab_size = vocab_size


def make_model(architecture: str, chunk: int, size: dict):
    """A model of 64-wide heads without dropout."""
    vocabulary = _Vocabulary(size["vocab_size"])
    width = size["emb_dim"]
    shape = {**size, "num_heads": max(width // 64, 1), "head_dim": 64, "mlp_dim": 4 * width}
    if architecture == "gpt2":
        from ckl_jax.models.decoder_only import DecoderOnlyModel
        from ckl_jax.models.gpt2 import GPT2Config, Transformer

        config = GPT2Config(**shape, max_positions=chunk, dropout_rate=0.0)
        return DecoderOnlyModel(Transformer(config), vocabulary=vocabulary)
    from ckl_jax.models.recurrent import RecurrentModel
    from ckl_jax.models.transformer_xl import Transformer, TransformerXLConfig

    config = TransformerXLConfig(**shape, dropout_rate=0.0)
    return RecurrentModel(Transformer(config), vocabulary=vocabulary, memory_length=chunk)


def run(architecture: str, chunk: int, chunks: int, rounds: int, size: dict, cores: int) -> dict:
    """Measures one architecture at one length of chunks.

    Returns:
      Times by mask, with `ratio` of the best round to the static pass's best, by the wall.
    """
    contestants = {m: Contestant(architecture, m, chunk, chunks, size) for m in MASKS}
    times = measure.take_turns(contestants, rounds)
    for entry in times.values():
        best = min(entry["samples"]["cpu_seconds"])
        entry["best_cpu_seconds"] = best
        entry["ratio"] = round(best / min(times["none"]["samples"]["cpu_seconds"]), 3)
    return {
        "architecture": architecture,
        "chunk": chunk,
        "chunks": chunks,
        "size": size,
        "times": times,
        "machine": measure.machine(cores),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--architecture", choices=("gpt2", "transformer_xl"), default="gpt2")
    parser.add_argument("--chunk", type=int, nargs="+", default=[128, 512])
    parser.add_argument("--tokens", type=int, default=512, help="of one call")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--vocabulary", type=int, default=8192)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--name", help="of the file of results")
    args = parser.parse_args()
    measure.use_cores(args.cores)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    size = {
        "emb_dim": args.width,
        "num_layers": args.layers,
        "vocab_size": args.vocabulary,
    }
    results = []
    for chunk in args.chunk:
        try:
            found = run(
                args.architecture,
                chunk,
                max(args.tokens // chunk, 1),
                args.rounds,
                size,
                args.cores,
            )
        except UserError as e:
            sys.exit(str(e))
        results.append(found)
        for mask, entry in found["times"].items():
            target = f"  (target {TARGETS[mask]})" if mask in TARGETS else ""
            print(
                f"{args.architecture}  chunk {chunk:4}  {mask:9}  {entry['best_cpu_seconds']:7.3f} "
                f"CPU s  {entry['ratio']:5.2f} x the static pass{target}",
                flush=True,
            )
    path = measure.save(args.name or f"dynamic_eval_{args.architecture}", {"runs": results})
    print(f"{path.name} written")


if __name__ == "__main__":
    main()
