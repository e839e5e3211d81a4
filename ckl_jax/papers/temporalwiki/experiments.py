"""`ckl experiment temporalwiki/...`: tables and figures of the paper, its numbers beside ours.

All share the folder of a study, with the models and evaluations that they have in common.
"""

import dataclasses
from pathlib import Path

from ckl_jax.analysis.sections import write_markdown
from ckl_jax.data.process_pool import Progress, no_progress
from ckl_jax.files import read_json_object
from ckl_jax.papers.temporalwiki import study
from ckl_jax.papers.temporalwiki.analysis import examples
from ckl_jax.papers.temporalwiki.analysis.comparison import ANALYSES
from ckl_jax.papers.temporalwiki.analysis.published import TITLES
from ckl_jax.papers.temporalwiki.analysis.report import examples_of, overview
from ckl_jax.papers.temporalwiki.analysis.results import RECORD, load
from ckl_jax.papers.temporalwiki.analysis.tables import Perplexities, table_3
from ckl_jax.papers.temporalwiki.settings import Updates

_UNTIL = dict.fromkeys(("table5", "table6"), study.ALL)  # of others, the data suffice
_UNTIL |= dict.fromkeys(("table3", "figure2", "figure3", "figure4"), study.MODELS)
_UNTIL |= dict.fromkeys(("table1", "figure5"), study.TEXT)
_LEAD = (
    "Un and C: perplexity of unchanged and of changed facts, Avg: their mean; lower is better. "
    "Below a perplexity is its 95 % interval over facts, whose number is n."
)


def run(name: str, updates: Updates, progress: Progress = no_progress) -> Path:
    """Makes the missing data and models of an experiment, and writes its tables and figures.

    Returns:
      The path of the Markdown.

    Raises:
      UserError: as `study.run_study`.
    """
    key = name.rpartition("/")[2]
    until = _UNTIL.get(key, study.DATA)
    study.run_study(_settings(key, updates), progress, until=until)
    trained = until not in (study.TEXT, study.DATA)
    loaded_study = load(updates.root, trained=trained)
    sections, numbers = ANALYSES[key](loaded_study)
    lead, below = [], []
    if trained:  # data have no perplexities
        facts = examples.section(loaded_study)
        lead = overview(loaded_study, table_3(loaded_study, Perplexities(loaded_study)))
        lead, below = [*lead, examples_of(facts), _LEAD], [facts]
    return write_markdown(name, TITLES[key], sections, {key: numbers}, updates.root, lead, below)


def describe(name: str, updates: Updates) -> list[str]:
    """The steps of `ckl temporalwiki` that the experiment is made of; writes nothing."""
    key = name.rpartition("/")[2]
    return study.describe(_settings(key, updates), _UNTIL.get(key, study.DATA))


def _settings(key: str, updates: Updates) -> Updates:
    """The settings with the facts to tune on and the rows that an experiment needs.

    Facts to tune on are drawn with the probes. They are drawn for all experiments, so that a folder
    of one will do for another.
    """
    record = updates.root / RECORD
    before = read_json_object(record) if record.is_file() else {"light_tuning": 500}
    tuning = 500 if key in ("table5", "table6", "table7") else before.get("light_tuning", 0)
    nouns = before.get("proper_nouns", 0) or (10_000 if key == "figure2" else 0)
    return dataclasses.replace(
        updates,
        light_tuning=updates.light_tuning or tuning,
        proper_nouns=updates.proper_nouns or nouns,
    )
