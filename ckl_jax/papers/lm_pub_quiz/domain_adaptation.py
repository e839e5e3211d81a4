"""LM-PUB-QUIZ's adaptation of models to the text of a domain (Ploner et al. 2024, section 3.1)."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ckl_jax.checkpoints.restore import find_checkpoint
from ckl_jax.convert.gin_record import configured, row_length
from ckl_jax.data.tasks.causal import prepare_rows
from ckl_jax.data.text.masked_vocabulary import open_vocabulary
from ckl_jax.errors import UserError
from ckl_jax.models.decoder_only import DecoderOnlyModel
from ckl_jax.models.masked import MaskedModel
from ckl_jax.options import named_folders
from ckl_jax.papers.lm_pub_quiz.settings import Experiment
from ckl_jax.train import studies
from ckl_jax.train.subprocess_runs import Training

_JOB = ("jobs/temporalwiki_train.gin", "methods/vanilla.gin")  # of running text
_PAPER = "lm_pub_quiz_domain.gin"
_GROWS = ("models", "domains")
_OWN = ("CACHE_DIRS", "MIXTURE_OR_TASK_NAME", "INITIAL_CHECKPOINT_PATH")


def adapt(settings: Experiment, models: Mapping[str, str]) -> dict[str, Path]:
    """Trains each model on each domain's text, as far as that has not been done.

    Args:
      settings: its `domains` are NAME=FILE of documents.
      models: {name: folder of `ckl import-hf`}, causal or masked language models.

    Returns:
      {"MODEL on DOMAIN": folder}, those of the first model first.

    Raises:
      UserError: a folder is no such model, a file has no text, or a training failed.
    """
    domains = named_folders(settings.domains, "--domains")
    studies.refuse_own(settings.bindings, _OWN)
    files = {name: _gin_files(folder) for name, folder in models.items()}
    for gin_files in files.values():  # a misspelt binding is refused before anything is written
        studies.gin_values(gin_files, dict.fromkeys(_OWN), settings.bindings)
    inside = dataclasses.replace(settings, out=str(settings.root / "domains"))
    free = {f.name for f in dataclasses.fields(inside)} - {"seed", "bindings", *_GROWS}
    with studies.open_study(
        inside, "domains.json", "domain adaptation", free=free, may_become=_grows
    ) as study:
        trainings = []
        for name, folder in models.items():
            rows, length = inside.root / "rows" / name, row_length(folder)
            study.step(f"Rows for {name}: {', '.join(domains)}")
            prepare_rows(domains, rows, open_vocabulary(folder), length)
            macros = {"CACHE_DIRS": (rows,), "INITIAL_CHECKPOINT_PATH": folder}
            macros |= {"RANDOM_SEED": inside.seed, "TASK_FEATURE_LENGTHS": {"targets": length}}
            for domain in domains:
                label = f"{name} on {domain}"
                own = {**macros, "MIXTURE_OR_TASK_NAME": domain}
                trainings.append(
                    Training.of(label, inside.root / label, files[name], own, inside.bindings)
                )
        study.step("Training")
        study.run(trainings)
    return {t.name: t.folder for t in trainings}


def _grows(name: str, before: Any, now: Any) -> bool:
    return name in _GROWS and set(before) <= set(now)


def _gin_files(folder: str) -> list[str]:
    architecture, _ = configured(folder) or (None, {})
    if architecture is None or not (Path(folder) / "model.gin").is_file():
        raise UserError(f"{folder} has no model.gin; make the folder by `ckl import-hf`.")
    find_checkpoint(folder)
    if architecture.model not in (DecoderOnlyModel, MaskedModel):
        raise UserError(
            f"{folder} is a {architecture.name}; --domains trains causal and masked models."
        )
    own = [] if architecture.includes_gin else [architecture.gin_file]
    return [*_JOB, *own, str(Path(folder) / "model.gin"), _PAPER]
