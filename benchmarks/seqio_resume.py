"""What resuming a SeqIO run costs: by its saved position, and by reading again what it has seen.

    python -m benchmarks.seqio_resume --steps 10,40,160

Measured are CPU seconds until the first batch, and the bytes of the position. The task shuffles
2,000 lines of drawn words and tokenises them with a vocabulary made of them.
"""

import argparse
import functools
import itertools
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from benchmarks import measure
from ckl_jax.parallel.mesh import Partitioner
from ckl_jax.t5x_api.seqio_data import TaskStream, import_seqio
from ckl_jax.t5x_api.utils import DatasetConfig


def register(folder: Path, words: int):
    """Registers the task `drawn`; returns its vocabulary."""
    import sentencepiece

    seqio = import_seqio()
    rng = np.random.default_rng(0)
    known = ["".join(rng.choice(list("abcdefghij"), rng.integers(2, 9))) for _ in range(5000)]
    lines = [" ".join(rng.choice(known, words)) for _ in range(2000)]
    (folder / "lines.txt").write_text("\n".join(lines))
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "lines.txt"), model_prefix=str(folder / "v"), vocab_size=4000
    )
    vocabulary = seqio.SentencePieceVocabulary(str(folder / "v.model"), extra_ids=0)
    seqio.TaskRegistry.add(
        "drawn",
        source=seqio.TextLineDataSource({"train": str(folder / "lines.txt")}),
        preprocessors=[
            lambda dataset: dataset.map(lambda line: {"inputs": line, "targets": line}),
            seqio.preprocessors.tokenize,
            seqio.preprocessors.append_eos,
        ],
        output_features={name: seqio.Feature(vocabulary) for name in ("inputs", "targets")},
    )
    return vocabulary


def resumed(stream: TaskStream, step: int, folder: str | None) -> tuple[float, dict]:
    """CPU seconds until the first batch after `step`, and that batch."""
    start = time.process_time()
    batch = next(batches := stream.iterate(step, folder, step))
    seconds = time.process_time() - start
    batches.close()
    return seconds, batch


def run(steps: list[int], batch_size: int, length: int) -> list[dict]:
    """A row for each step: CPU seconds by both ways, and bytes of the saved position."""
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        vocabulary = register(folder, words=length)
        model = SimpleNamespace(input_vocabulary=vocabulary, output_vocabulary=vocabulary)
        lengths = {"inputs": length, "targets": length}
        cfg = DatasetConfig("drawn", lengths, "train", batch_size, shuffle=True, seed=0)
        partitioner = Partitioner()
        make = functools.partial(TaskStream, cfg, 10**6, 0, model, partitioner)
        for step in steps:
            position = folder / f"run{step}"
            stream = make()
            for _ in itertools.islice(stream.iterate(0), step):
                pass
            stream.save_position(str(position), step)
            size = sum(file.stat().st_size for file in position.iterdir())
            saved, ours = resumed(make(), step, str(position))
            again, theirs = resumed(make(), step, None)
            assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)
            rows.append({"step": step, "position": saved, "read_again": again, "bytes": size})
            print(f"step {step}: {saved:.2f} CPU s by position ({size:,} bytes), {again:.2f} again")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", default="10,40,160")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--length", type=int, default=512)
    args = parser.parse_args()
    rows = run([int(step) for step in args.steps.split(",")], args.batch, args.length)
    about = {"batch": args.batch, "length": args.length, "machine": measure.machine(2)}
    print(measure.save("seqio_resume", {**about, "rows": rows}))


if __name__ == "__main__":
    main()
