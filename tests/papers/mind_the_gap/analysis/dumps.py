"""Dumps of word losses, and a folder of `ckl mind-the-gap`, without a model."""

import numpy as np

from ckl_jax.data.tasks.word_losses import DumpWriter, WordLosses
from ckl_jax.data.text.documents import Document, write_documents
from ckl_jax.files import write_json
from ckl_jax.papers.mind_the_gap.analysis.report import write_report
from ckl_jax.papers.mind_the_gap.analysis.staleness_study import StalenessStudy
from tests.analysis.helpers import undrawn

MASKS = {"all": 0.8, "bias": 0.85, "embedding": 0.9}  # of the stale model's perplexity


def _dump(folder, documents):
    writer = DumpWriter(folder, {"memory_length": 4})
    for document in documents:
        writer.add(document)
    writer.flush()
    return str(folder)


def write_scored(folder, texts, perplexity):
    """`perplexity` of (date, word); tokens are words, a chunk is a document."""
    return _dump(
        folder,
        (
            WordLosses(
                f"d{i}",
                date,
                words,
                np.log([perplexity(date, w) for w in words]).astype(np.float32),
                np.ones(len(words), np.int32),
                np.zeros(len(words), np.int32),
            )
            for i, (date, words) in enumerate(texts)
        ),
    )


def write_gap(root, seed, turned=False):
    """Six months in which the stale model gets worse; or better, and updates make it worse."""
    generator = np.random.default_rng(seed)
    texts = []
    for month in range(1, 7):
        for day in range(1, 29, 4):
            words = [f"word{i}" for i in generator.integers(0, 9, 12)] + ["zoom", "Berlin", "2019"]
            texts.append((f"2019-{month:02d}-{day:02d}", words))
    sign = -1 if turned else 1

    def stale(date, word):
        hard = {"zoom": 0.6, "Berlin": 0.3, "2019": 0.3}.get(word, 0.0)
        noise = 0.001 * generator.normal()
        return 20.0 * np.exp(sign * (0.02 * int(date[5:7]) + hard) + noise)

    def updated(factor):
        def perplexity(date, word):
            gain = np.log(factor) * (2 if word == "zoom" else 1) - 0.01 * int(date[5:7])
            return stale(date, word) * np.exp(sign * gain)

        return perplexity

    train = root / "data" / "train.jsonl"
    train.parent.mkdir(parents=True)
    write_documents(train, (Document(str(i), "2018-01-01", "", "word1 word2") for i in range(9)))
    losses = {"control": lambda date, word: 20.0, "time_stratified": stale}
    losses |= {f"time_stratified + {mask}": updated(x) for mask, x in MASKS.items()}
    dumps = {m: write_scored(root / "losses" / m / "d", texts, f) for m, f in losses.items()}
    for mask in MASKS:
        past = {"all": {"start": 0.0, "2019-06": sign * 2.0 + 0.01 * seed}}
        summary = root / "losses" / f"time_stratified + {mask}" / "summary.json"
        write_json(summary, {"forgetting": {"past": past}})
    control = dumps.pop("control")
    study = StalenessStudy(
        control=control, models=dumps, train=str(train), emerging_min_count=40, samples=10
    )
    with undrawn():
        write_report(study, root)
    write_json(root / "mind_the_gap.json", {"seed": seed, "size": "tiny", "corpus": None})
    return root
