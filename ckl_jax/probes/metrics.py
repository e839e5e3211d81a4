"""Scores of one prediction against its accepted answers, as the published numbers use them.

SQuAD's normalisation (Rajpurkar et al., 2016): lower case, no ASCII punctuation, no articles,
single spaces. Pure Python; no model, no tokenizer. All scores lie in 0..1.

A quirk kept for comparability: answers such as "The" or "!!!" normalise to the empty string, which
an empty prediction then matches exactly.
"""

import collections
import contextlib
import functools
import re
import string
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence

from ckl_jax.errors import UserError

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_DELETE_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text: str) -> str:
    """Lower case, then no ASCII punctuation, then no articles, then single spaces.

    The order matters: "A.N." becomes "an" before articles go, hence "".
    """
    text = text.lower().translate(_DELETE_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


def exact_match(prediction: str, answers: str | Iterable[str]) -> int:
    """1 if the prediction equals any answer after normalisation, else 0.

    Args:
      answers: one accepted answer, or several (aliases); none at all gives 0.
    """
    return int(normalize_answer(prediction) in {normalize_answer(a) for a in _as_tuple(answers)})


def f1(prediction: str, answers: str | Iterable[str]) -> float:
    """Largest F1 of the multisets of normalised words, over all answers; 0 without overlap."""
    return max((_f1(prediction, answer) for answer in _as_tuple(answers)), default=0.0)


def _f1(prediction, answer):
    predicted = normalize_answer(prediction).split()
    wanted = normalize_answer(answer).split()
    shared = sum((collections.Counter(predicted) & collections.Counter(wanted)).values())
    # 2 P R / (P + R) with P = shared / predicted and R = shared / wanted.
    return 2.0 * shared / (len(predicted) + len(wanted)) if shared else 0.0


def rouge_l(prediction: str, answers: str | Iterable[str]) -> float:
    """Largest F of ROUGE-L over all answers, of the texts as they are; 0 for an empty prediction.

    By the package `rouge`, with which KILT scores: sentences end at full stops, a word that occurs
    again does not count again.

    Raises:
      UserError: the package is not installed.
    """
    scored = _rouge()
    return max((_rouge_l(scored, prediction, a) for a in _as_tuple(answers)), default=0.0)


def _rouge_l(scored: Callable, prediction: str, answer: str) -> float:
    # `rouge` recurses once per word when it reconstructs the longest common subsequence.
    with _deep_enough(prediction, answer):
        try:
            return scored(prediction, answer)[0]["rouge-l"]["f"]
        except ValueError:  # one of them has no sentence
            return 0.0


@functools.cache
def _rouge() -> Callable:
    try:
        import rouge
    except ImportError as e:
        raise UserError("ROUGE-L needs the package rouge; pip install 'ckl-jax[kilt]'.") from e
    # KILT's official scorer uses this package, whose ROUGE-L is not that of `rouge_score`.
    return rouge.Rouge(metrics=["rouge-l"], stats=["f"]).get_scores


@contextlib.contextmanager
def _deep_enough(*texts: str) -> Iterator[None]:
    """Context manager that raises the recursion limit to what `rouge` needs for two sentences."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + sum(len(text.split()) for text in texts))
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def hit_rank(predictions: Sequence[str], answers: str | Iterable[str]) -> int:
    """Rank, from 1, of the first prediction that matches an answer exactly; 0 if none does.

    Args:
      predictions: decoded texts, best first.
      answers: one accepted answer, or several.
    """
    accepted = {normalize_answer(a) for a in _as_tuple(answers)}
    ranks = (i for i, p in enumerate(predictions, start=1) if normalize_answer(p) in accepted)
    return next(ranks, 0)


def precision_at_k(
    predictions: Sequence[str], answers: str | Iterable[str], ks: Iterable[int]
) -> dict[int, int]:
    """{k: 1 if one of the first k predictions matches an answer exactly, else 0}.

    Fewer predictions than k are not an error: the missing ones do not match.

    Args:
      predictions: decoded texts, best first.
      answers: one accepted answer, or several.
      ks: the cut-offs, each at least 1.

    Raises:
      ValueError: a cut-off below 1.
    """
    ks = tuple(ks)
    if any(k < 1 for k in ks):
        raise ValueError(f"cut-offs of precision at k must be at least 1, got {ks}")
    rank = hit_rank(predictions, answers)
    return {k: int(0 < rank <= k) for k in ks}


def _as_tuple(answers):
    # A lone string would otherwise be taken for a sequence of one-letter answers.
    return (answers,) if isinstance(answers, str) else tuple(answers)
