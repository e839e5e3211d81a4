"""CKL's corpora and probes as SeqIO tasks, over the same files as the cached tasks.

`register_ckl(directory, vocabulary)` registers those whose files are in `directory`; with the
environment variables CKL_DATA_DIR and CKL_VOCABULARY set, importing this module does so
(`--gin.MIXTURE_OR_TASK_MODULE="'ckl_jax.tasks.ckl'"`).

Corpora (split train): ckl_wikipedia_span, ckl_wikipedia_small_span, ckl_recent_news_span,
ckl_recent_news_small_span, ckl_recent_news_small1_span, ckl_recent_news_small2_span.
Probes (split validation): invariant_lama, updated_lama, new_lama, new_lama_easy, ...; their targets
are the first answer, their metrics exact match and F1 in percent over all accepted ones.
"""

import functools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import seqio
import tensorflow as tf

from ckl_jax.data.facts.ckl_files import CORPORA, available_probes, read_corpus, read_probe
from ckl_jax.data.text.vocabularies import space_sentinels
from ckl_jax.probes.metrics import exact_match, f1
from ckl_jax.tasks.rows import register_rows

CORPUS_TASKS = {
    "ckl_wikipedia_span": "d0",
    "ckl_wikipedia_small_span": "d0_small",
    "ckl_recent_news_span": "d1",
    "ckl_recent_news_small_span": "d1_small",
    "ckl_recent_news_small1_span": "p1",
    "ckl_recent_news_small2_span": "p2",
}


def register_ckl(
    directory: str | os.PathLike, vocabulary: str | os.PathLike, extra_ids: int = 100
) -> list[str]:
    """Registers the tasks whose files are in CKL's data folder `directory`.

    Args:
      directory: the folder.
      vocabulary: a SentencePiece model.
      extra_ids: its sentinels.

    Returns:
      The names of the tasks. A task that was registered before is replaced.
    """
    pieces = seqio.SentencePieceVocabulary(os.fspath(vocabulary), extra_ids)
    features = {
        name: seqio.Feature(vocabulary=pieces, add_eos=True) for name in ("inputs", "targets")
    }
    names = []
    for name, corpus in CORPUS_TASKS.items():
        path = Path(directory) / CORPORA[corpus]
        if path.is_file():
            register_rows(name, "train", functools.partial(_corpus_rows, path), features)
            names.append(name)
    for name in available_probes(directory):
        rows = functools.partial(_probe_rows, name, directory)
        register_rows(
            name,
            "validation",
            rows,
            features,
            postprocess_fn=functools.partial(_answers, pieces),
            metric_fns=[closed_book_metrics],
        )
        names.append(name)
    return names


def _corpus_rows(path: Path) -> Iterator[dict[str, str]]:
    for row in read_corpus(path):
        inputs, targets = (space_sentinels(row[key]) for key in ("input", "output"))
        yield {"inputs": inputs, "targets": targets}


def _probe_rows(name: str, directory: str | os.PathLike) -> Iterator[dict[str, Any]]:
    for item in read_probe(name, directory):
        yield {
            "id": item.id,
            "inputs": space_sentinels(item.input),
            "targets": item.answers[0],
            "answers": list(item.answers),
        }


def _answers(
    vocabulary: seqio.SentencePieceVocabulary,
    output: Any,
    example: dict[str, Any] | None = None,
    is_target: bool = False,
) -> Any:
    """Returns the accepted answers (targets), or the prediction without its sentinels."""
    if is_target and example is not None:
        return [tf.compat.as_text(a) for a in example["answers"]]
    text = output if isinstance(output, str) else vocabulary.decode(output)
    return _plain(text)


def _plain(text: str) -> str:
    """Strips what SeqIO decodes sentinels and unknown pieces to."""
    return text.replace("\u2047", " ").strip()


def closed_book_metrics(
    targets: Sequence[Sequence[str]], predictions: Sequence[str]
) -> dict[str, float]:
    """Returns exact match and F1, percent, of predictions against lists of accepted answers."""
    count = max(len(targets), 1)
    pairs = list(zip(predictions, targets, strict=True))
    return {
        "em": 100.0 * sum(exact_match(p, t) for p, t in pairs) / count,
        "f1": 100.0 * sum(f1(p, t) for p, t in pairs) / count,
    }


if "CKL_DATA_DIR" in os.environ and "CKL_VOCABULARY" in os.environ:
    register_ckl(os.environ["CKL_DATA_DIR"], os.environ["CKL_VOCABULARY"])
