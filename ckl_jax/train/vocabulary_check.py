"""Checks that a checkpoint and the run that starts from it use the same token ids."""

import sys
from typing import Any

import jax

from ckl_jax.checkpoints.restore import find_checkpoint, read_json_item
from ckl_jax.data.tasks.cached import CachedTask
from ckl_jax.data.text.vocabularies import digest_of
from ckl_jax.errors import UserError


def check_same_vocabulary(path: str, vocabulary: Any, *, warn: bool = False) -> None:
    """Raises `UserError` if a checkpoint was trained with another vocabulary.

    Args:
      path: a MODEL_DIR or a checkpoint in one.
      vocabulary: the run's; one without a digest is not compared.
      warn: say so, on stderr, if the checkpoint does not record its vocabulary.
    """
    mine = digest_of(vocabulary)
    if mine is None:
        return
    trained = read_json_item(find_checkpoint(path), "metadata").get("vocabulary_digest")
    # By content, not by path: the same SentencePiece file may lie anywhere.
    if trained and trained != mine:
        raise UserError(
            f"Checkpoint {path} was trained with another vocabulary ({trained[:12]}) than "
            f"{vocabulary!r} ({mine[:12]}); bind the one that it was trained with, and data "
            "prepared with it."
        )
    if not trained and warn and jax.process_index() == 0:
        print(
            f"Warning: {path} does not record its vocabulary; unless that is {vocabulary!r}, its "
            "embeddings mean other tokens.",
            file=sys.stderr,
            flush=True,
        )


def check_task_vocabulary(task: CachedTask, name: str, vocabulary: Any) -> None:
    """Raises `UserError` if a task was tokenised with another vocabulary than the model's.

    Args:
      task: the task; one that does not record its vocabulary is not compared.
      name: what the task is called in the complaint.
      vocabulary: the model's; one without a digest is not compared.
    """
    digest, made_with = digest_of(vocabulary), task.meta.get("vocabulary_digest")
    if digest and made_with and digest != made_with:
        raise UserError(
            f"Task {name!r} was tokenised with another vocabulary ({made_with[:12]}) than the "
            f"model's ({digest[:12]}); prepare it again."
        )
    theirs = bool(task.meta.get("legacy_spacing"))
    mine = bool(getattr(vocabulary, "legacy_spacing", False))
    if digest and theirs != mine:
        raise UserError(
            f"Task {name!r} was tokenised with legacy_spacing={theirs}, and the model's vocabulary "
            f"has {mine}; bind vocabularies.Vocabulary.legacy_spacing = {theirs}, or prepare the "
            "task again."
        )
