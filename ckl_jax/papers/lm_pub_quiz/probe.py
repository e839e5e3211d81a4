"""`ckl probe bear`: rank the options of a relational dataset by any model that there is here."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ckl_jax import checks
from ckl_jax.checkpoints import architectures
from ckl_jax.checkpoints.from_hf import load_hf
from ckl_jax.checkpoints.hub import folder_of
from ckl_jax.checkpoints.restore import complete_steps, find_checkpoint, is_checkpoint, is_remote
from ckl_jax.data.facts.relational import Dataset
from ckl_jax.errors import UserError
from ckl_jax.files import os_errors, write_jsonl
from ckl_jax.methods.method import Method, vanilla
from ckl_jax.models.base import BaseTransformerModel
from ckl_jax.models.decoder_only import DecoderOnlyModel
from ckl_jax.models.encoder_decoder import EncoderDecoderModel
from ckl_jax.models.masked import MaskedModel
from ckl_jax.papers.lm_pub_quiz.fill_scorer import TARGETS, EncoderDecoderScorer
from ckl_jax.papers.lm_pub_quiz.mask_filling import MaskFiller, fill_dataset
from ckl_jax.papers.lm_pub_quiz.masked_scorer import SCHEMES, MaskedScorer
from ckl_jax.papers.lm_pub_quiz.ranking import Evaluator
from ckl_jax.papers.lm_pub_quiz.ranking_results import DatasetResults
from ckl_jax.papers.lm_pub_quiz.scorers import CausalScorer
from ckl_jax.parallel.mesh import Partitioner
from ckl_jax.train import compile_cache
from ckl_jax.train.configs import RestoreCheckpointConfig
from ckl_jax.train.restore import RestoredModel

JOB = "jobs/ranking.gin"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of ranking; see `ranking.Evaluator` and `scorers.CausalScorer`.

    Attributes:
      out: folder of the results.
      templates: numbers, or None for all.
      reduction, conditional_score, bos, subsample: what a score is.
      target: "answer" or "statement", what an encoder-decoder is to write; see
        `papers.lm_pub_quiz.fill_scorer`.
      pll_metric: what a masked model has hidden beside a token; see
      `papers.lm_pub_quiz.masked_scorer`. batch_size: rows of the model at once.
      dtype: of the activations; None is float32.
      bindings: gin bindings over those of a run, such as another place of its vocabulary.
      trusted: modules of the user's own that the run's gin file may import.
    """

    out: str | None = None
    templates: tuple[int, ...] | None = None
    reduction: str | None = "sum"
    conditional_score: bool = False
    bos: bool | None = None
    subsample: int | None = None
    target: str = "answer"
    pll_metric: str = SCHEMES[0]
    batch_size: int | None = None
    dtype: str | None = None
    bindings: tuple[str, ...] = ()
    trusted: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        checks.require_choice(TARGETS, **{"--target": self.target})
        checks.require_choice(SCHEMES, **{"--pll-metric": self.pll_metric})
        checks.require_choice((None, "bfloat16", "float32"), **{"--dtype": self.dtype})


Progress = Callable[[str, int, int], None]


def probe(
    model: str, dataset: Dataset, settings: Settings, progress: Progress | None = None
) -> DatasetResults:
    """Ranks by a model in a folder.

    Args:
      model: a Hugging Face folder or name, a MODEL_DIR, or a checkpoint in one.
      dataset: the relations.
      settings: how.
      progress: see `Evaluator.evaluate_dataset`.

    Raises:
      UserError: the folder is none of these.
    """
    folder = Path(folder_of(model))
    # Hugging Face's file; a MODEL_DIR of this library has config.gin instead.
    if (folder / "config.json").exists():
        return _rank_hugging_face(folder, dataset, settings, progress)
    from ckl_jax.config import gin_config

    if not folder.exists() and not is_remote(model):
        raise UserError(
            f"There is no folder {model}; give that of a Hugging Face model, a MODEL_DIR or a "
            "checkpoint."
        )
    if folder.is_dir() and not is_checkpoint(folder) and not complete_steps(folder):
        raise UserError(
            f"{model} is not a model: it has neither Hugging Face's config.json nor a folder "
            "checkpoint_<step>; give one that has, or a checkpoint."
        )
    # The newest checkpoint of a MODEL_DIR, or the checkpoint itself.
    checkpoint = Path(str(find_checkpoint(folder)))
    return gin_config.run(
        rank,
        files=_gin_files(checkpoint.parent, settings.trusted),
        # The user's bindings come last, and win.
        bindings=[
            f"CHECKPOINT_PATH = {str(checkpoint)!r}",
            *_method(checkpoint.parent),
            f"ACTIVATION_DTYPE = {settings.dtype or 'float32'!r}",
            *settings.bindings,
        ],
        trusted=settings.trusted,
        dataset=dataset,
        settings=settings,
        name=str(folder),
        progress=progress,
    )


def _gin_files(run: Path, trusted: Sequence[str]) -> list[str]:
    """The gin files that describe the model of a run."""
    from ckl_jax.config import gin_config

    if (run / "config.gin").exists():
        return [str(run / "config.gin"), JOB]
    if (run / "model.gin").exists():
        path = str(run / "model.gin")
        # Which model a model.gin describes is said by what it binds, e.g. GPT2Config; the
        # architecture's own gin file builds it.
        bound = gin_config.load(
            [path], trusted=trusted
        ).selectors()  # imports the modules of the file
        return [architectures.of_gin_names(bound, path).gin_file, path, JOB]
    raise UserError(
        f"{run} has neither the config.gin of a run nor the model.gin of an imported model; give "
        "such a folder, or one from Hugging Face with config.json."
    )


def _method(run: Path) -> list[str]:
    # A run's config.gin says its method; an imported model has none, and `rank` needs the macro.
    return [] if (run / "config.gin").exists() else ["METHOD = None"]


def rank(
    *,
    model: BaseTransformerModel,
    restore_checkpoint_cfg: RestoreCheckpointConfig,
    dataset: Dataset,
    settings: Settings,
    name: str,
    method: Method | None = None,
    partitioner: Partitioner | None = None,
    progress: Progress | None = None,
) -> DatasetResults:
    """Ranks by one checkpoint.

    Args:
      model: the base model; the method is put into it here.
      restore_checkpoint_cfg: which checkpoint.
      dataset: the relations.
      settings: how.
      name: of the model, for the results.
      method: the one that trained the checkpoint; None is none.
      partitioner: mesh and rules.
      progress: see `Evaluator.evaluate_dataset`.

    Raises:
      UserError: the checkpoint does not fit.
    """
    restored = RestoredModel(model, method or vanilla(), partitioner, restore_checkpoint_cfg)
    with restored.on_mesh():
        params = restored.load(restored.paths[-1])
        # Every device gets the whole batch: ranking needs no sharded data.
        put = restored.partitioner.put_whole
        scorer = _scorer(restored.model, params, put, settings)
        return _rank(scorer, name, dataset, settings, progress)


def _rank_hugging_face(
    folder: Path, dataset: Dataset, settings: Settings, progress: Progress | None
) -> DatasetResults:
    # A gin run enables it itself.
    compile_cache.enable()
    names = ("bos", "target", "pll_metric", "batch_size", "dtype")
    scorer = open_scorer(folder, **{name: getattr(settings, name) for name in names})
    return _rank(scorer, str(folder), dataset, settings, progress)


def open_scorer(
    folder: str | Path,
    *,
    bos: bool | None = None,
    target: str = TARGETS[0],
    pll_metric: str = SCHEMES[0],
    batch_size: int | None = None,
    dtype: str | None = None,
) -> Any:
    """Returns the scorer of a model in a Hugging Face folder.

    Args:
      folder: with config.json, weights and tokenizer.
      bos, target, pll_metric, batch_size, dtype: see `Settings`.

    Raises:
      UserError: the folder is not a model of a kind that ranks, or a setting is not for its kind.
    """
    settings = Settings(
        bos=bos, target=target, pll_metric=pll_metric, batch_size=batch_size, dtype=dtype
    )
    folder = Path(folder)
    # float32 unless told otherwise: with bfloat16 scores of close options become equal, and ties go
    # to the first option.
    config, params = load_hf(folder, **({"dtype": dtype} if dtype else {}))
    architecture = architectures.of_config(config)
    files = architecture.vocabulary
    model = architecture.build(config, files.reader(files.path(folder)))
    return _scorer(model, jax.device_put(params), None, settings)


def _scorer(model: BaseTransformerModel, params: Any, put: Any, settings: Settings) -> Any:
    # Refused, not ignored: a score with a setting that had no effect would be reported as one with
    # it.
    _check_fit(model, settings)
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


def _check_fit(model: BaseTransformerModel, settings: Settings) -> None:
    """Refuses settings that this kind of model has no use for."""
    # A setting that has its default was not given, as far as can be seen here.
    default = Settings()
    kinds = {
        "--pll-metric": ("pll_metric", MaskedModel, "masked models (BERT)"),
        "--target": ("target", EncoderDecoderModel, "encoder-decoders (T5)"),
        "--no-bos": ("bos", DecoderOnlyModel, "causal models (GPT-2)"),
    }
    for flag, (name, kind, called) in kinds.items():
        if getattr(settings, name) != getattr(default, name) and not isinstance(model, kind):
            raise UserError(f"{flag} is of {called}; leave it out for this {type(model).__name__}.")
    if isinstance(model, EncoderDecoderModel) and settings.conditional_score:
        # With target "answer" all scored tokens but the last sentinel are the answer's already.
        if settings.target == TARGETS[0]:
            raise UserError(
                "--conditional is of whole statements; an encoder-decoder's answers are scored "
                "given their statement anyway: leave it out, or add --target statement."
            )


def _rank(scorer, name, dataset, settings: Settings, progress) -> DatasetResults:
    if settings.out is not None:
        # Before the first relation is scored, which can take minutes.
        with os_errors(settings.out):
            Path(settings.out).mkdir(parents=True, exist_ok=True)
    return Evaluator(scorer, name, settings.conditional_score).evaluate_dataset(
        dataset,
        settings.templates,
        subsample=settings.subsample,
        save_path=settings.out,
        reduction=settings.reduction,
        progress=progress,
    )


@dataclasses.dataclass(frozen=True)
class Ranking:
    """An evaluation of `train.train.train`: the accuracy on a dataset, whole and by domain.

    The scores of all options go to `<folder>/ranking/<dataset>/<step>` in LM-PUB-QUIZ's layout; the
    scalars say how many seconds it took.

    Attributes:
      dataset: folder of the dataset; None evaluates nothing.
      folder: MODEL_DIR.
      relation_info: see `Dataset.from_path`.
      relations: codes; () is all.
      templates, subsample, target, bos, pll_metric, batch_size: see `Settings`.
    """

    dataset: str | None = None
    folder: str = "."
    relation_info: str | None = None
    relations: tuple[str, ...] = ()
    templates: tuple[int, ...] | None = (0,)
    subsample: int | None = None
    target: str = "answer"
    bos: bool | None = None
    pll_metric: str = SCHEMES[0]
    batch_size: int | None = None

    def __call__(
        self, model: BaseTransformerModel, partitioner: Partitioner
    ) -> Callable[[Any, int, bool], dict[str, dict[str, float]]]:
        """Reads the dataset; returns `(params, step, last) -> scores`."""
        if self.dataset is None:
            return lambda params, step, last: {}
        dataset = Dataset.from_path(self.dataset, self.relation_info, self.relations)
        settings = Settings(
            bos=self.bos,
            subsample=self.subsample,
            target=self.target,
            pll_metric=self.pll_metric,
            batch_size=self.batch_size,
        )
        # Built once, so that its jitted step is compiled once; `evaluate` puts the current
        # parameters in.
        scorer = _scorer(model, None, partitioner.put_whole, settings)
        evaluator = Evaluator(scorer, Path(self.folder).name)

        def evaluate(params: Any, step: int, last: bool) -> dict[str, dict[str, float]]:
            del last
            started = time.monotonic()
            scorer.params = params
            results = evaluator.evaluate_dataset(dataset, self.templates, subsample=self.subsample)
            if jax.process_index() == 0:
                results.save(Path(self.folder) / "ranking" / dataset.name / f"{step:06}")
            scalars = {**_scalars(results), "seconds": time.monotonic() - started}
            return {f"inference_eval/{dataset.name}": scalars}

        return evaluate


@dataclasses.dataclass(frozen=True)
class MaskFilling:
    """An evaluation of `train.train.train`: answers of one piece at a masked model's mask.

    A row for each goes to `<folder>/mask_filling/<dataset>/<step>.jsonl`.

    Attributes:
      dataset, folder, relation_info, relations, templates, batch_size: see `Ranking`.
    """

    dataset: str | None = None
    folder: str = "."
    relation_info: str | None = None
    relations: tuple[str, ...] = ()
    templates: tuple[int, ...] = (0,)
    batch_size: int | None = None

    def __call__(
        self, model: BaseTransformerModel, partitioner: Partitioner
    ) -> Callable[[Any, int, bool], dict[str, dict[str, float]]]:
        """Reads the dataset; returns `(params, step, last) -> scores`."""
        if self.dataset is None:
            return lambda params, step, last: {}
        if not isinstance(model, MaskedModel):
            raise UserError(
                f"Only masked models fill masks, not a {type(model).__name__}; rank by it instead "
                "(ranking.Ranking)."
            )
        dataset = Dataset.from_path(self.dataset, self.relation_info, self.relations)
        filler = MaskFiller(
            model, None, batch_size=self.batch_size, put_batch=partitioner.put_whole
        )

        def evaluate(params: Any, step: int, last: bool) -> dict[str, dict[str, float]]:
            del last
            filler.params = params
            rows = list(fill_dataset(filler, dataset, self.templates))
            if jax.process_index() == 0:
                folder = Path(self.folder) / "mask_filling" / dataset.name
                write_jsonl(folder / f"{step:06}.jsonl", rows)
            ranks = np.array([row["rank"] for row in rows])
            fractions = {f"precision@{k}": 100 * float(np.mean(ranks < k)) for k in (1, 10)}
            return {
                f"inference_eval/{dataset.name}_mask_filling": {**fractions, "items": len(rows)}
            }

        return evaluate


def _scalars(results: DatasetResults) -> dict[str, float]:
    """Accuracies in percent: of all rows, and by domain where the dataset has any."""
    found = {"accuracy": results.get_metrics("accuracy")["overall"]["accuracy"]}
    if all("domains" in result.relation_info for result in results):
        for domain, values in results.get_metrics("accuracy", "domains").items():
            found[f"accuracy/{domain}"] = values["accuracy"]
    return {name: 100 * value for name, value in found.items()}
