"""Ranking while transformers' `Trainer` trains a PyTorch model."""

from pathlib import Path
from typing import Any

import jax
from transformers import TrainerCallback

from ckl_jax.checkpoints.from_hf import load_hf
from ckl_jax.data.facts.relational import Dataset
from ckl_jax.errors import UserError
from ckl_jax.papers.lm_pub_quiz.opening import saved
from ckl_jax.papers.lm_pub_quiz.ranking import Evaluator


class PubQuizCallback(TrainerCallback):
    """Ranks a dataset at each evaluation of a `Trainer`, with this package's scorer.

    It logs `eval_<dataset>_score`, the accuracy in 0..1, and with `accumulate` the groups' as
    `eval_<dataset>_<group>`. Models in several parts (FSDP, DeepSpeed) are not supported.

    Args:
      trainer: the model and tokenizer are its own; `trainer.add_callback` takes the callback.
      dataset: a folder, a known name such as "BEAR", or a `Dataset`.
      accumulate: None, "domains", "cardinality" or another key of the relation info.
      save_path: the results go to `<save_path>/<step>_<dataset>_results`.
      template_index, subsample, reduction: see `Evaluator.evaluate_dataset`.
      **settings: see `Evaluator.from_model`.

    Raises:
      UserError: bad input, before the training.
    """

    def __init__(
        self,
        trainer: Any,
        dataset: Any,
        *,
        accumulate: str | None = None,
        template_index: Any = 0,
        subsample: int | None = None,
        reduction: str = "sum",
        save_path: str | Path | None = None,
        **settings: Any,
    ):
        self._trainer, self._accumulate, self._save_path = trainer, accumulate, save_path
        self._dataset = dataset if isinstance(dataset, Dataset) else Dataset.from_path(dataset)
        for relation in self._dataset if accumulate not in (None, "cardinality") else ():
            if accumulate not in relation.info:
                raise UserError(f"{relation.code} of {self._dataset.name} has no {accumulate!r}.")
        self._options = {
            "template_index": template_index,
            "subsample": subsample,
            "reduction": reduction,
        }
        self._evaluator = Evaluator.from_model(trainer.model, trainer.processing_class, **settings)

    def on_evaluate(
        self,
        args: Any,
        state: Any,
        control: Any,
        metrics: dict[str, float] | None = None,
        **unused: Any,
    ) -> None:
        """Ranks by the weights as they are now."""
        if not state.is_world_process_zero:
            return
        with saved(self._trainer.model) as folder:
            self._evaluator.scorer.params = jax.device_put(load_hf(folder)[1])
        results = self._evaluator.evaluate_dataset(self._dataset, **self._options)
        name = self._dataset.name
        scores = {f"eval_{name}_score": results.get_metrics("accuracy")["overall"]["accuracy"]}
        if self._accumulate:
            groups = results.get_metrics("accuracy", self._accumulate)
            scores |= {
                f"eval_{name}_{g}".replace(" ", "_"): v["accuracy"] for g, v in groups.items()
            }
        if self._save_path is not None:
            results.save(Path(self._save_path) / f"{state.global_step}_{name}_results")
        if metrics is not None:
            metrics |= scores
        self._trainer.log(scores)
