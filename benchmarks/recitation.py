"""Facts of an update, ranked in their questions' words and in sentences of the training text.

A model that knows a fact ranks its answer first in both, one that recites in the second alone.

    python -m benchmarks.recitation --update updates/updates/0001 --documents news.jsonl
"""

import argparse
import random
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ckl_jax import Evaluator
from ckl_jax.analysis.statistics import bootstrap_means, interval
from ckl_jax.data.text.documents import read_documents
from ckl_jax.data.text.sentences import sentence_splitter
from ckl_jax.files import read_jsonl

_NAMES = re.compile(r"[A-Z][\w'-]+(?:\s+(?:of|and|the)?\s*[A-Z][\w'-]+)*")


def sentences(path: str) -> list[str]:
    split = sentence_splitter()
    texts = (line for document in read_documents(path) for line in document.text.split("\n"))
    return [s for text in texts for s in split(text) if 20 < len(s) < 300]


def pairs(items: list[dict], trained: list[str], count: int) -> Iterator[tuple[dict, str, str]]:
    """(item, its question, a training sentence with its answer), with [Y] for the answer."""
    generator = random.Random(0)
    generator.shuffle(items)
    for item in items:
        before, after = item["text"][: item["start"]], item["text"][item["end"] :]
        answer = item["text"][item["start"] : item["end"]]
        whole = re.compile(rf"(?<!\w){re.escape(answer)}(?!\w)")
        names = [n for n in _NAMES.findall(f"{before} {after}") if not re.match("The\\b|Who\\b", n)]
        if not names:
            continue
        subject = max(names, key=len)
        found = [s for s in trained if subject in s and len(whole.findall(s)) == 1]
        if found:
            yield item, f"{before}[Y]{after}", whole.sub("[Y]", generator.choice(found))
            count -= 1
        if not count:
            return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--update", required=True, help="folder of an update")
    parser.add_argument("--documents", required=True, help="the text that it trained on")
    parser.add_argument("--facts", type=int, default=300)
    args = parser.parse_args()
    evaluator = Evaluator.from_model(f"{args.update}/model")
    items = list(read_jsonl(Path(args.update) / "items.jsonl"))
    right = []
    for item, *templates in pairs(items, sentences(args.documents), args.facts):
        options = item["candidates"]
        answer = options.index(item["text"][item["start"] : item["end"]])
        scores = (evaluator.evaluate_item(t, options, capitalize=False) for t in templates)
        right.append([int(np.argmax(x)) == answer for x in scores])
    for name, mine in zip(("question", "training sentence"), np.array(right, float).T, strict=True):
        low, high = interval(bootstrap_means(mine[None])[0])
        print(f"{name}: {mine.mean():.2f} [{low:.2f}, {high:.2f}] of {len(mine)}")


if __name__ == "__main__":
    main()
