"""Mask filling: where the right answer stands among all tokens at a masked model's mask.

The older way to probe a masked model (LAMA, Petroni et al. 2019), and LM-PUB-QUIZ's contrast to
ranking (Ploner et al. 2024, section 3.3): of an answer that is one token, its rank over the whole
vocabulary. Answers of several tokens have no such rank.
"""

import dataclasses
from collections.abc import Iterator, Sequence

import jax
import numpy as np

from ckl_jax.data.facts.relational import Dataset, Relation
from ckl_jax.data.facts.statements import Statement, fill
from ckl_jax.errors import UserError
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
        """[S] int, 0 is best; -1 of an answer that is not one token, or that occurs twice."""
        # `conditional` scores the answers' tokens alone, so the number of scored tokens is the
        # number of tokens of the answer, over all places where the template puts it.
        found = self.token_scores(statements, conditional=True)
        single = found.scored.sum(axis=1) == 1
        return np.where(single, found.values.sum(axis=1), -1).astype(np.int64)


def fill_dataset(
    filler: MaskFiller, dataset: Dataset, templates: Sequence[int] = (0,)
) -> Iterator[dict]:
    """Yields a row for each instance and template whose answer is one token.

    Raises:
      UserError: no relation has such an answer.
    """
    found = False
    for relation in dataset:
        for template in templates:
            for row in _rows(filler, relation, template):
                found = True
                yield row
    if not found:
        raise UserError(
            f"{dataset.name} has no answer that is one token of {filler.model.vocabulary!r}: none "
            "can be filled in; rank them instead."
        )


def _rows(filler: MaskFiller, relation: Relation, template: int) -> Iterator[dict]:
    if template >= len(relation.templates):
        raise UserError(
            f"{relation.code} has no template {template}; it has {len(relation.templates)}, "
            "counted from 0."
        )
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
