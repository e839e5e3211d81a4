"""That the simulated stream goes stale, by a model of three words: figures of the docs."""

import collections
import math

import numpy as np
import pytest

from ckl_jax.data.text.documents import read_documents, write_documents
from ckl_jax.papers.mind_the_gap.data.split_files import split
from ckl_jax.papers.mind_the_gap.data.time_splits import Options
from ckl_jax.world.stream import stream

pytestmark = pytest.mark.slow
START = ["<s>"] * 3


def sentences(documents):
    for document in documents:
        for line in document.text.split("\n"):
            yield START + line.split()


class Trigrams:
    """Interpolated with shorter contexts, and in the end with the uniform one over `size` words."""

    def __init__(self, documents, size):
        self.size, self.next = size, collections.Counter()
        self.contexts = collections.Counter()
        for words in sentences(documents):
            for i in range(len(START), len(words)):
                for k in range(4):
                    self.next[tuple(words[i - k : i + 1])] += 1
                    self.contexts[k, tuple(words[i - k : i])] += 1

    def loss(self, documents):
        """Nats of all words, and their number."""
        total = count = 0
        for words in sentences(documents):
            for i in range(len(START), len(words)):
                total -= math.log(self._probability(words, i))
                count += 1
        return total, count

    def _probability(self, words, i):
        p = 1 / self.size
        for k in range(4):
            if seen := self.contexts[k, tuple(words[i - k : i])]:
                share = seen / (seen + (3 if k else 200))
                p = share * self.next[tuple(words[i - k : i + 1])] / seen + (1 - share) * p
        return p


@pytest.mark.parametrize("seed", (0, 1, 2))
def test_the_gap_between_the_arms_grows(tmp_path, seed):
    file = tmp_path / "x.jsonl.gz"
    write_documents(file, stream(seed, "small"), level=1)
    split(file, tmp_path / "out", Options())

    def read(name):
        return list(read_documents(tmp_path / "out" / f"{name}.jsonl.gz"))

    test, arms = read("test"), [read("time_stratified_train"), read("control_train")]
    size = len({w for part in (test, *arms) for d in part for w in d.text.split()})
    models = [Trigrams(documents, size) for documents in arms]
    perplexities = [math.exp(np.divide(*model.loss(test))) for model in models]
    assert 18 < perplexities[0] < 28 and 10 < perplexities[1] < 14
    months = sorted({d.date[:7] for d in test})
    gaps = []
    for month in months:
        documents = [d for d in test if d.date.startswith(month)]
        (stale, words), (control, _) = (model.loss(documents) for model in models)
        gaps.append(100 * math.expm1((stale - control) / words))
    slope, _ = np.polyfit(range(len(gaps)), gaps, 1)
    assert 1.5 < slope < 5 and np.mean(gaps[:4]) < 80 and np.mean(gaps[-4:]) > 90
    train, found = (
        collections.Counter(w for d in part for w in d.text.split()) for part in (arms[0], test)
    )
    shares = {w: train[w] / train.total() / (n / found.total()) for w, n in found.items()}
    emerging = [w for w, n in found.items() if n >= 50 and shares[w] <= 0.2]
    assert 5 <= len(emerging) <= 40
    print(f"\nseed {seed}: {perplexities}, slope {slope:.2f}, {len(emerging)} emerging words")
