"""Mask filling: where the right answer stands among all tokens at a masked model's mask.

The older way to probe a masked model (LAMA, Petroni et al. 2019), and LM-PUB-QUIZ's contrast to
ranking (Ploner et al. 2024, section 3.3): of an answer that is one token, its rank over the whole
vocabulary. Answers of several tokens have no such rank.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from ckl_jax.analysis import statistics
from ckl_jax.data.facts.relational import Dataset, Relation
from ckl_jax.data.facts.statements import Statement, fill
from ckl_jax.errors import not_empty
from ckl_jax.papers.lm_pub_quiz import ranking
from ckl_jax.papers.lm_pub_quiz.masked_scorer import MaskedScorer


@dataclasses.dataclass
class MaskFiller(MaskedScorer):
    """Ranks answers over the vocabulary; see `MaskedScorer` for the arguments."""

    pll_metric: str = "original"

    def __post_init__(self) -> None:
        super().__post_init__()
        # The same passes as for pseudo log likelihoods, but the model returns the rank of the
        # target in the vocabulary instead of its log probability.
        self._step = jax.jit(self.model.rank_positions)

    def ranks(self, statements: Sequence[Statement]) -> np.ndarray:
        """[S] int, 0 is best; -1 of an answer that is not one known token, or that occurs twice."""
        # `conditional` scores the answers' tokens alone, so the number of scored tokens is the
        # number of tokens of the answer, over all places where the template puts it.
        scores = self.token_scores(statements, conditional=True)
        # The token for unknown words is no answer.
        known = scores.scored & (scores.ids != self.model.vocabulary.unk_id)
        single = (scores.scored.sum(axis=1) == 1) & known.any(axis=1)
        return np.where(single, scores.values.sum(axis=1), -1).astype(np.int64)


def fill_dataset(
    filler: MaskFiller,
    dataset: Dataset,
    templates: Sequence[int] | None = (0,),
    progress: Callable[[str, int, int], None] | None = None,
) -> Iterator[dict]:
    """Yields a row for each instance and template whose answer is one token.

    Args:
      progress: called before a relation is filled: its code, its number, relations in all.

    Raises:
      UserError: no relation has such an answer, or there is no such template (None is all).
    """
    rows = (
        row
        for relation in _announced(dataset, progress)
        for template in ranking.chosen_templates(relation, templates)
        for row in _rows(filler, relation, template)
    )
    return not_empty(
        rows,
        f"{dataset.name} has no answer that is one token of {filler.model.vocabulary!r}: none can "
        "be filled in; rank them instead.",
    )


def _announced(
    dataset: Dataset, progress: Callable[[str, int, int], None] | None
) -> Iterator[Relation]:
    for number, relation in enumerate(dataset):
        if progress:
            progress(relation.code, number, len(dataset))
        yield relation


def measure(rows: Sequence[dict]) -> dict[str, Any]:
    """Precision of the rows of `fill_dataset` in percent, overall and by relation.

    Returns:
      {"overall": {"precision@1", "precision@10": {"value", "low", "high"}, "items"}, "relations":
      {code: ...}}. Intervals are 95 % of a bootstrap over facts, whose templates count once.
    """
    parts: dict[str, list[dict]] = {}
    for row in rows:
        parts.setdefault(row["relation"], []).append(row)
    by_relation = {code: _precision(part) for code, part in parts.items()}
    return {"overall": _precision(rows), "relations": by_relation}


def _precision(rows: Sequence[dict]) -> dict[str, Any]:
    facts: dict[tuple, int] = {}
    at = [facts.setdefault((r["relation"], r["sub_id"], r["answer"]), len(facts)) for r in rows]
    ranks, scores = np.array([row["rank"] for row in rows]), {"items": len(rows)}
    for k in (1, 10):
        right = ranks < k
        drawn = statistics.bootstrap_means((np.bincount(at, right) / np.bincount(at))[None])
        scores[f"precision@{k}"] = statistics.estimate(100 * right.mean(), 100 * drawn[0])
    return scores


def _rows(filler: MaskFiller, relation: Relation, template: int) -> Iterator[dict]:
    statements = [
        fill(relation.templates[template], x.sub_label, relation.answer_labels[x.answer_idx])
        for x in relation.instances
    ]
    for instance, rank in zip(relation.instances, filler.ranks(statements), strict=True):
        if rank >= 0:
            yield {
                "relation": relation.code,
                "sub_id": instance.sub_id,
                "template": template,
                "answer": relation.answer_labels[instance.answer_idx],
                "rank": int(rank),
            }
