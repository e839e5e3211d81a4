"""Scores of a Hugging Face model: the best candidate of each item, and losses of text.

The folder is what ships, so the folder is what is evaluated. Candidates are ranked by the log
probability of the sentence with each (LM-PUB-QUIZ; of a T5, of the candidate in the blank), which
needs no instructions.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ckl_jax.data.facts.statements import Statement
from ckl_jax.data.process_pool import batches
from ckl_jax.data.text.documents import Document, spread
from ckl_jax.data.text.spans import chunk
from ckl_jax.data.text.taggers import HeuristicFinder
from ckl_jax.papers.lm_pub_quiz.opening import open_scorer
from ckl_jax.train import compile_cache
from ckl_jax.updates import scores
from ckl_jax.updates.items import Item, Positions

_AT_ONCE, _TEXTS_AT_ONCE = 512, 64  # statements
_PIECE_WORDS = 120
_SPANS = 5  # of a piece, masked for a T5
Progress = Callable[[int, int, str], None]


def open_model(folder: str | Path) -> Any:
    """The scorer of a model in Hugging Face's format, for `ask`."""
    compile_cache.enable()
    return open_scorer(folder)


def ask(
    scorer: Any,
    items: Sequence[Item],
    texts: Mapping[str, Sequence[Statement]],
    progress: Progress,
    tasks: Callable[[Any, Any], Any] | None = None,
) -> dict[str, Any]:
    """Scores items and text with one model.

    Args:
      scorer: of `open_model`.
      texts: {name: pieces of `pieces`}.
      progress: called with (done, total, what).
      tasks: (model, parameters) -> results of further tasks.

    Returns:
      {"answers": {item id: place among its candidates}, "texts": {name: [[nats, tokens], ...]},
      "tasks": their results}.
      Pieces that are longer than the model's positions are left out.
    """
    positions = Positions(scorer.model.config, scorer.model.input_vocabulary)
    answers: dict[str, int] = {}
    for part in batches(items, lambda item: len(item.candidates), _AT_ONCE):
        statements = [s for item in part for s in item.statements()]
        sums = scorer.token_scores(statements).values.sum(1)
        for item in part:
            mine, sums = sums[: len(item.candidates)], sums[len(item.candidates) :]
            answers[item.id] = int(np.argmax(mine))
        progress(len(answers), len(items), "facts asked")
    losses = {}
    for name, statements in texts.items():
        fitting = [s for s in statements if positions.hold(s.text)]
        losses[name] = []
        for part in batches(fitting, lambda _: 1, _TEXTS_AT_ONCE):
            part_scores = scorer.token_scores(part)
            pairs = zip(-part_scores.values.sum(1), part_scores.scored.sum(1), strict=True)
            losses[name] += [[float(nats), int(tokens)] for nats, tokens in pairs]
    results = {"answers": answers, "texts": losses}
    return results | ({"tasks": tasks(scorer.model, scorer.params)} if tasks else {})


def pieces(documents: Iterable[Document], masked: bool) -> list[Statement]:
    """Pieces of documents of up to 120 words, at most `scores.PIECES`, evenly spread.

    Args:
      masked: for an encoder-decoder: only names and dates count, those of each piece at once.
    """
    texts = spread((p for d in documents for p in chunk(d.text, _PIECE_WORDS)), scores.PIECES)
    if not masked:
        return [Statement(text, (), ((0, len(text)),)) for text in texts]
    finder = HeuristicFinder.fit(texts)
    named = ((text, finder.find(text)[:_SPANS]) for text in texts)
    return [
        Statement(text, (), tuple((a, b) for a, b, _ in spans)) for text, spans in named if spans
    ]
