"""`ckl probe bear`: rank the options of a relational dataset by any model that there is here."""

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import jax
import numpy as np

from ckl_jax import checks
from ckl_jax.data.facts.relational import Dataset, name_of
from ckl_jax.errors import UserError
from ckl_jax.files import write_jsonl
from ckl_jax.models.base import BaseTransformerModel
from ckl_jax.models.masked import MaskedModel
from ckl_jax.papers.lm_pub_quiz import opening
from ckl_jax.papers.lm_pub_quiz.mask_filling import MaskFiller, fill_dataset
from ckl_jax.papers.lm_pub_quiz.ranking import Evaluator, chosen_templates
from ckl_jax.papers.lm_pub_quiz.ranking_results import DatasetResults
from ckl_jax.papers.lm_pub_quiz.settings import SCHEMES, TARGETS, Scoring, Settings
from ckl_jax.parallel.mesh import Partitioner
from ckl_jax.train.progress import evaluating

Progress = Callable[[str, int, int], None]


def probe(
    model: Any,
    dataset: Dataset,
    settings: Settings,
    progress: Progress | None = None,
    tokenizer: Any = None,
) -> DatasetResults:
    """Ranks by a model.

    Args:
      model, tokenizer: see `opening.open_model`.
      progress: see `Evaluator.evaluate_dataset`.

    Raises:
      UserError: there is no such model, or the settings do not fit it.
    """
    opened = opening.open_model(model, settings, tokenizer)
    evaluator = Evaluator(opened.scorer, opened.name, settings.conditional_score, opened.on_mesh)
    return evaluator.evaluate_dataset(
        dataset,
        settings.templates,
        subsample=settings.subsample,
        save_path=settings.out,
        reduction=None if settings.reduction == "none" else settings.reduction,
        progress=progress,
    )


Evaluate = Callable[[Any, int, bool], dict[str, dict[str, float]]]


@dataclasses.dataclass(frozen=True)
class _OfDataset:
    """An evaluation of `train.train.train` on a dataset; None as the dataset evaluates nothing."""

    dataset: str | None = None
    folder: str = "."
    relation_info: str | None = None
    relations: tuple[str, ...] = ()
    templates: tuple[int, ...] | None = (0,)
    batch_size: int | None = None
    _suffix: ClassVar[str] = ""

    @property
    def names(self) -> tuple[str, ...]:
        """What is evaluated; () is nothing."""
        if self.dataset is None:
            return ()
        return (f"inference_eval/{name_of(self.dataset)}{self._suffix}",)

    def __call__(self, model: BaseTransformerModel, partitioner: Partitioner) -> Evaluate:
        """Reads the dataset; returns `(params, step, last) -> scores`."""
        if self.dataset is None:
            return lambda params, step, last: {}
        dataset = Dataset.from_path(self.dataset, self.relation_info, self.relations)
        for relation in dataset:  # now, and not when the model has been trained
            chosen_templates(relation, self.templates)
        return self._evaluation(dataset, model, partitioner)


# What the settings of `Ranking` are called in gin files, for `opening.make_scorer`.
_IN_GIN = {
    "pll_metric": "RANKING_PLL_METRIC",
    "target": "probe.Ranking.target",
    "bos": "probe.Ranking.bos",
    "conditional_score": "RANKING_CONDITIONAL",
    "statements": "bind probe.Ranking.target = 'statement'",
}


@dataclasses.dataclass(frozen=True)
class Ranking(_OfDataset):
    """An evaluation of `train.train.train`: the accuracy on a dataset, whole and by domain.

    The scores of all options go to `<folder>/ranking/<dataset>/<step>` in LM-PUB-QUIZ's layout; the
    scalars say how many seconds it took.

    Attributes:
      dataset: folder of the dataset; None evaluates nothing.
      folder: MODEL_DIR.
      relation_info: see `Dataset.from_path`.
      relations: codes; () is all.
      templates, subsample, target, bos, pll_metric, batch_size, conditional_score: see `Settings`.
      reduction: "sum" or "mean" of token scores.
    """

    subsample: int | None = None
    target: str = "answer"
    bos: bool | None = None
    pll_metric: str = SCHEMES[0]
    reduction: str = "sum"
    conditional_score: bool = False

    def __post_init__(self) -> None:
        checks.require_choice(("sum", "mean"), RANKING_REDUCTION=self.reduction)
        checks.require_int(RANKING_INSTANCES=self.subsample)
        checks.require_choice(SCHEMES, **{_IN_GIN["pll_metric"]: self.pll_metric})
        checks.require_choice(TARGETS, **{_IN_GIN["target"]: self.target})

    def _evaluation(self, dataset: Dataset, model: Any, partitioner: Partitioner) -> Evaluate:
        names = ("bos", "target", "pll_metric", "batch_size", "conditional_score")
        settings = Scoring(**{name: getattr(self, name) for name in names})
        # Built once, so that its jitted step is compiled once; `evaluate` puts the current
        # parameters in.
        scorer = opening.make_scorer(model, None, partitioner.put_whole, settings, _IN_GIN)
        evaluator = Evaluator(scorer, Path(self.folder).name, self.conditional_score)

        def evaluate(params: Any, step: int, last: bool) -> dict[str, dict[str, float]]:
            del last
            started = time.monotonic()
            scorer.params = params
            results = evaluator.evaluate_dataset(
                dataset,
                self.templates,
                subsample=self.subsample,
                reduction=self.reduction,
                progress=_lines(dataset, "relations ranked"),
            )
            if jax.process_index() == 0:
                results.save(Path(self.folder) / "ranking" / dataset.name / f"{step:06}")
            scalars = {**_scalars(results), "seconds": time.monotonic() - started}
            return {self.names[0]: scalars}

        return evaluate


@dataclasses.dataclass(frozen=True)
class MaskFilling(_OfDataset):
    """An evaluation of `train.train.train`: answers of one token at a masked model's mask.

    A row for each goes to `<folder>/mask_filling/<dataset>/<step>.jsonl`.

    Attributes:
      dataset, folder, relation_info, relations, templates, batch_size: see `Ranking`.
    """

    _suffix: ClassVar[str] = "_mask_filling"

    def _evaluation(self, dataset: Dataset, model: Any, partitioner: Partitioner) -> Evaluate:
        filler = make_filler(model, None, partitioner.put_whole, self.batch_size)

        def evaluate(params: Any, step: int, last: bool) -> dict[str, dict[str, float]]:
            del last
            filler.params = params
            progress = _lines(dataset, "relations filled in")
            rows = list(fill_dataset(filler, dataset, self.templates, progress))
            if jax.process_index() == 0:
                folder = Path(self.folder) / "mask_filling" / dataset.name
                write_jsonl(folder / f"{step:06}.jsonl", rows)
            scalars = {"items": len(rows)}
            for k in (1, 10):
                scalars[f"precision@{k}"] = 100 * float(np.mean([row["rank"] < k for row in rows]))
            return {self.names[0]: scalars}

        return evaluate


def _lines(dataset: Dataset, parts: str) -> Progress | None:
    """Lines of progress while a model trains; one process alone prints them."""
    if jax.process_index():
        return None
    tell = evaluating(dataset.name)
    return lambda code, done, total: tell(done, total, parts)


def make_filler(model: Any, params: Any, put: Any, batch_size: int | None) -> MaskFiller:
    """The filler of a masked model; raises `UserError` for another one."""
    if not isinstance(model, MaskedModel):
        raise UserError(
            f"Only masked models fill masks, not a {type(model).__name__}; rank by it instead."
        )
    return MaskFiller(model, params, batch_size=batch_size, put_batch=put)


def _scalars(results: DatasetResults) -> dict[str, float]:
    """Accuracies in percent: of all rows, by cardinality, and by domain if the dataset has any."""
    scalars = {"accuracy": results.get_metrics("accuracy")["overall"]["accuracy"]}
    has_domains = all("domains" in result.relation_info for result in results)
    for key in ("cardinality", *(["domains"] if has_domains else [])):
        for group, values in results.get_metrics("accuracy", key).items():
            scalars[f"accuracy/{group}".replace(" ", "_")] = values["accuracy"]
    return {name: 100 * value for name, value in scalars.items()}
