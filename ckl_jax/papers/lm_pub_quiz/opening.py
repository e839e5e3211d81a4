"""Opens the model that ranks: of Hugging Face, live from transformers, or of a run."""

import contextlib
import copy
import dataclasses
import os
import tempfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from ckl_jax import checks
from ckl_jax.checkpoints.hub import folder_of
from ckl_jax.errors import UserError
from ckl_jax.models.base import BaseTransformerModel
from ckl_jax.models.decoder_only import DecoderOnlyModel
from ckl_jax.models.encoder_decoder import EncoderDecoderModel
from ckl_jax.models.masked import MaskedModel
from ckl_jax.papers.lm_pub_quiz.fill_scorer import (
    CONDITIONAL,
    STATEMENTS,
    EncoderDecoderScorer,
    require_statements,
)
from ckl_jax.papers.lm_pub_quiz.masked_scorer import MaskedScorer
from ckl_jax.papers.lm_pub_quiz.scorers import CausalScorer
from ckl_jax.papers.lm_pub_quiz.settings import Scoring
from ckl_jax.train import opening

# What the settings are called in messages; "statements" is how a T5 scores whole statements.
_FLAGS = {
    "pll_metric": "--pll-metric (pll_metric)",
    "target": "--target (target)",
    "bos": "--no-bos (bos)",
    "conditional_score": CONDITIONAL,
    "statements": STATEMENTS,
}


@dataclasses.dataclass(frozen=True)
class Opened:
    """A model that scores."""

    name: str  # for results
    scorer: Any  # see `papers.lm_pub_quiz.scorers`; it has the model and its parameters
    # makes the `with` block in which it scores
    on_mesh: Callable[[], AbstractContextManager] = contextlib.nullcontext


def open_model(model: Any, settings: Scoring = Scoring(), tokenizer: Any = None) -> Opened:  # noqa: B008
    """Opens a model.

    Args:
      model: a Hugging Face folder or name, a MODEL_DIR, a checkpoint in one, a live model of
        transformers or PEFT, whose weights are copied as they are now, adapters merged, or what has
        these and their tokenizer as `opened_from`, such as a `Run`.
      tokenizer: of a live model: one of transformers, or its folder or name.

    Raises:
      UserError: it is none of these, of a kind that does not rank, a live model without tokenizer,
        a tokenizer for a folder, or a setting is not for its kind.
    """
    model, own = getattr(model, "opened_from", (model, None))
    tokenizer = own if tokenizer is None else tokenizer
    if hasattr(model, "save_pretrained"):
        with saved(model, _tokenizer(tokenizer)) as folder:
            kind = type(model).__name__
            try:
                opened = open_model(folder, settings)
            except UserError as e:  # which names files that are gone
                raise UserError(str(e).replace(str(folder), kind)) from e
            return dataclasses.replace(opened, name=getattr(model, "name_or_path", "") or kind)
    if not isinstance(model, str | os.PathLike):
        raise UserError(
            f"model is {str(model)[:40]!r}; give a folder, a name or a live model of transformers."
        )
    if tokenizer is not None:
        raise UserError(f"tokenizer is of a live model; {model} has its own: leave it out.")
    folder = folder_of(str(model))
    opened = opening.open_model(folder, settings.dtype, settings.bindings, settings.trusted)
    scorer = make_scorer(opened.model, opened.params, opened.put_batch, settings)
    return Opened(folder, scorer, opened.on_mesh)


def _tokenizer(given: Any) -> Any:
    """The tokenizer of a live model, which may be given by its folder or name."""
    if given is None:
        raise UserError("A live model needs its tokenizer: give tokenizer=...")
    if not isinstance(given, str | os.PathLike):
        if isinstance(given, type) or not hasattr(given, "save_pretrained"):
            raise UserError(
                f"tokenizer is {given!r}; give one of transformers, or its folder or name."
            )
        return given
    folder = folder_of(os.fspath(given), weights=False)
    if not Path(folder).is_dir():
        raise UserError(
            f"There is no folder {folder} with a tokenizer; give one, the name of a model on the "
            "hub, or a tokenizer of transformers."
        )
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception as e:  # of many kinds, by what the folder lacks
        raise UserError(f"{folder} holds no tokenizer that transformers reads: {e}.") from e


def open_scorer(folder: str | Path, **settings: Any) -> Any:
    """The scorer of a model; see `open_model` and `settings.Scoring`.

    Raises:
      UserError: `conditional_score` is given, which belongs to the `Evaluator`.
    """
    if settings.pop("conditional_score", False):
        raise UserError(
            "open_scorer takes no conditional_score, for a scorer scores every token; give it to "
            "Evaluator(scorer, conditional_score=True) or Evaluator.from_model."
        )
    return open_model(folder, checks.settings("open_scorer", Scoring, settings)).scorer


@contextlib.contextmanager
def saved(model: Any, tokenizer: Any = None):
    """A `with` block with a live model in a folder of Hugging Face's format.

    Raises:
      UserError: a model of PEFT whose adapters are no part of the weights.
    """
    if hasattr(model, "merge_and_unload"):
        # A copy: training goes on with the adapters beside the weights.
        model = copy.deepcopy(model).merge_and_unload()
    elif hasattr(model, "peft_config"):
        raise UserError(
            f"{type(model).__name__} has adapters of PEFT that do not merge into the weights; give "
            "a plain model of transformers, or one of LoRA by get_peft_model."
        )
    with tempfile.TemporaryDirectory(prefix="ckl_live_") as folder:
        model.save_pretrained(folder)
        if tokenizer is not None:
            tokenizer.save_pretrained(folder)
        yield Path(folder)


def make_scorer(
    model: BaseTransformerModel,
    params: Any,
    put: Any,
    settings: Scoring,
    called: Mapping[str, str] = _FLAGS,
) -> Any:
    """The scorer of a kind of model.

    Args:
      put: places a batch on the devices; None leaves it as it is.
      called: what the user calls the settings, for messages, with the keys of `_FLAGS`.
    """
    # Refused, not ignored: a score with a setting that had no effect would be reported as one with
    # it.
    _check_fit(model, settings, called)
    size = settings.batch_size
    if isinstance(model, DecoderOnlyModel):
        return CausalScorer(model, params, settings.bos, batch_size=size, put_batch=put)
    if isinstance(model, MaskedModel):
        return MaskedScorer(model, params, settings.pll_metric, batch_size=size, put_batch=put)
    if isinstance(model, EncoderDecoderModel):
        return EncoderDecoderScorer(model, params, settings.target, size, put)
    raise UserError(
        f"No scorer ranks by a {type(model).__name__}; derive it from DecoderOnlyModel, "
        "MaskedModel or EncoderDecoderModel."
    )


def _check_fit(model: BaseTransformerModel, settings: Scoring, called: Mapping[str, str]) -> None:
    """Refuses settings that this kind of model has no use for."""
    # A setting that has its default was not given, as far as can be seen here.
    default = Scoring()
    kinds = {
        "pll_metric": (MaskedModel, "masked models (BERT)"),
        "target": (EncoderDecoderModel, "encoder-decoders (T5)"),
        "bos": (DecoderOnlyModel, "causal models (GPT-2)"),
    }
    for name, (kind, models) in kinds.items():
        if getattr(settings, name) != getattr(default, name) and not isinstance(model, kind):
            raise UserError(
                f"{called[name]} is of {models}; leave it out for this {type(model).__name__}."
            )
    if isinstance(model, EncoderDecoderModel) and settings.conditional_score:
        require_statements(settings.target, called["conditional_score"], called["statements"])
