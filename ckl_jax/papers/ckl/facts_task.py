"""Cached tasks made by gin for decoder-only models: CKL's corpora as running text (appendix G), and
facts or items for light-tuning (also TemporalWiki, appendix E).
"""

from pathlib import Path
from typing import Any

from ckl_jax import checks
from ckl_jax.data.facts.ckl_files import PROBES, TEXTS
from ckl_jax.data.facts.probe import Probe
from ckl_jax.data.tasks.causal import prepare_facts, prepare_originals, prepare_prompts
from ckl_jax.errors import UserError


def cached_facts(facts: str | None, folder: str, vocabulary: Any, length: int = 25) -> str:
    """Makes the cached task of a file of facts; gin binds it in place of a task's name.

    Args:
      facts: CSV file, such as `lighttuning_changed_500.csv` of `ckl data probes --light-tuning`.
      length: tokens of a fact at most.

    Raises:
      UserError: no file is given, or it is malformed.
    """
    if facts is None:
        raise UserError(
            "LIGHT_TUNE_FACTS is not set; give a file of facts, such as the "
            "lighttuning_changed_500.csv of `ckl data probes --light-tuning 500`."
        )
    # A string: gin binds the result in place of a task's name.
    return str(prepare_facts(facts, folder, vocabulary, length))


def cached_prompts(
    probe: str | Probe,
    data_dir: str,
    folder: str,
    vocabulary: Any,
    length: int = 50,
    questions: bool = False,
    path: str | None = None,
) -> str:
    """Makes the cached task of items with their answers; gin binds it in place of a task's name.

    Args:
      probe: its format, and by it its file in `data_dir`: a record, or the name of a published
        one, such as "trex_5000" or "new_lama_easy_5000".
      data_dir: folder in CKL's published layout.
      folder, vocabulary, length, questions: see `causal.prepare_prompts`.
      path: a file of that format that is elsewhere.

    Raises:
      UserError: see `causal.prepare_prompts`; or there is no such probe.
    """
    if not isinstance(probe, Probe):
        checks.require_choice(PROBES, LIGHT_TUNE_PROBE=probe)
        probe = PROBES[probe]
    path = path or probe.path(data_dir)
    return str(prepare_prompts(path, probe, folder, vocabulary, length, questions))


def cached_originals(name: str, data_dir: str, folder: str, vocabulary: Any, length: int) -> str:
    """Makes the cached task of a corpus's unmasked texts; gin binds it in place of a task's name.

    Args:
      name: one of `ckl_files.TEXTS`.
      data_dir: folder in CKL's published layout.
      folder: of cached tasks.
      vocabulary, length: see `causal.prepare_originals`.

    Raises:
      UserError: see `causal.prepare_originals`; or there is no such corpus.
    """
    checks.require_choice(TEXTS, **{"cached_originals.name": name})
    path = Path(data_dir) / TEXTS[name]
    return str(prepare_originals(path, Path(folder) / name, vocabulary, length))


def run_name(model_dir: str, name: str) -> str:
    """The name of a tuned run in rows: that of the run that it started from, and its own."""
    return f"{Path(model_dir).name}_{name}"
