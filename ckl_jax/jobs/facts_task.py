"""Tuning a trained model on facts before it is asked (TemporalWiki, appendix E)."""

from pathlib import Path
from typing import Any

from ckl_jax.data.causal import prepare_facts
from ckl_jax.errors import UserError


def cached_facts(facts: str | None, folder: str, vocabulary: Any, length: int = 25) -> str:
    """Makes the cached task of a file of facts; gin binds it in place of a task's name.

    Args:
      facts: CSV file, such as `lighttuning_changed_500.csv` of `ckl data probes --light-tuning`.
      folder: of the task.
      vocabulary: of the model.
      length: tokens of a fact at most.

    Returns:
      `folder`.

    Raises:
      UserError: no file is given, or it is malformed.
    """
    if facts is None:
        raise UserError(
            "LIGHT_TUNE_FACTS is not set; give a file of facts, such as the "
            "lighttuning_changed_500.csv of `ckl data probes --light-tuning 500`."
        )
    return str(prepare_facts(facts, folder, vocabulary, length))


def run_name(model_dir: str, name: str) -> str:
    """The name of a tuned run in rows: that of the run that it started from, and its own."""
    return f"{Path(model_dir).name}_{name}"
