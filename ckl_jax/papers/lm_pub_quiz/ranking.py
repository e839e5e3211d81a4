"""Ranking probes: which of a relation's answers a model finds most likely in a statement.

LM-PUB-QUIZ's procedure (Ploner et al. 2024, section 2; Wiland et al. 2024): every instance is put
into every template with every option, and an option's score is the sum, or the mean, of its
statement's token scores. `Dataset`, `Evaluator` and `DatasetResults` are the field's three nouns.
"""

import contextlib
import dataclasses
import datetime
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ckl_jax import __version__, checks
from ckl_jax.data.facts.relational import Dataset, Relation
from ckl_jax.data.facts.statements import Statement, fill, statements
from ckl_jax.data.facts.tables import require_format
from ckl_jax.data.text.documents import encodable
from ckl_jax.errors import UserError, is_out_of_memory
from ckl_jax.files import os_errors
from ckl_jax.papers.lm_pub_quiz import opening
from ckl_jax.papers.lm_pub_quiz.ranking_metrics import Metric, named
from ckl_jax.papers.lm_pub_quiz.ranking_results import DatasetResults, RelationResult
from ckl_jax.papers.lm_pub_quiz.scorers import StatementError, TokenScores
from ckl_jax.papers.lm_pub_quiz.settings import Scoring
from ckl_jax.train.opening import identity

REDUCTIONS = ("sum", "mean", None)
# Columns of token scores, each a list with an entry for each option.
_RAW = ("pll_scores", "tokens", "sub_indices", "obj_indices", "template_indices")
# Statements that are held at once: what bounds the memory of a relation with 1,000 options.
_CHUNK = 100_000


@dataclasses.dataclass
class Evaluator:
    """Scores the options of relations.

    Attributes:
      scorer: a model that scores tokens, see `papers.lm_pub_quiz.scorers`.
      model_name: for the results.
      conditional_score: only tokens from the first one of the answer on are scored.
      on_mesh: makes the `with` block in which the model scores.
    """

    scorer: Any
    model_name: str = "model"
    conditional_score: bool = False
    on_mesh: Callable[[], AbstractContextManager] = contextlib.nullcontext

    def __repr__(self) -> str:
        return f"Evaluator({self.model_name!r}, {type(self.scorer).__name__})"

    @classmethod
    def from_model(cls, model: Any, tokenizer: Any = None, **settings: Any) -> "Evaluator":
        """The evaluator of a model; see `opening.open_model`, and `settings.Scoring`."""
        opened = opening.open_model(
            model, checks.settings("from_model", Scoring, settings), tokenizer
        )
        conditional = settings.get("conditional_score", False)
        return cls(opened.scorer, opened.name, conditional, opened.on_mesh)

    @checks.typed
    def evaluate_item(
        self,
        template: str,
        answers: Sequence[str],
        subject: str = "",
        reduction: str | None = "sum",
        capitalize: bool = True,
    ) -> list[Any]:
        """Scores the answers of one statement: one for each answer, or a list of token scores.

        Args:
          template: with `[Y]` for the answer, and `[X]` for the subject.
          answers: one or more.
          reduction: "sum", "mean", or None for token scores.
          capitalize: begin the statement with a capital letter, as those of datasets do.
        """
        checks.require_choice(REDUCTIONS, reduction=reduction)
        if isinstance(answers, str) or not len(answers):
            raise UserError(f"answers is {answers!r}; give a list of one or more.")
        with readable(template, *answers), self.on_mesh():
            part = [fill(template, subject, answer, capitalize) for answer in answers]
            scores = self.scorer.token_scores(part, self.conditional_score)
        _require_finite(scores, part, lambda bad: f"answer {bad + 1}")
        if reduction is None:
            return self._raw(scores, part, len(part))[0]["pll_scores"]
        return _reduced(scores, reduction).tolist()

    @checks.typed
    def evaluate_dataset(
        self,
        dataset: Dataset,
        template_index: int | Sequence[int] | None = None,
        *,
        subsample: int | None = None,
        save_path: str | os.PathLike | None = None,
        reduction: str | None = "sum",
        metric: Metric | Sequence[Metric] = (),
        create_instance_table: bool = True,
        fmt: str = "jsonl",
        batch_size: int | None = None,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> DatasetResults:
        """Scores every relation.

        With `save_path` each relation is written when it is done; a later call with the same
        settings reads it back, measures it anew and scores the others. Where there are no scores to
        measure, those with functions of the caller's are scored again.

        Args:
          template_index: one template, some, or None for all.
          subsample: score so many instances of each relation.
          save_path: a folder in LM-PUB-QUIZ's layout of results; they name the parameters, the
            configuration and the tokenizer of the scorer's model by digests.
          reduction: "sum", "mean", or None for token scores.
          metric: names, or functions of scores [R, K] and answers [R], computed at once and kept
            in the metadata.
          create_instance_table: False keeps the metrics alone, and no scores.
          fmt: of the files: "jsonl" or "parquet".
          batch_size: statements at once, from now on; None leaves it as the evaluator has it.
          progress: called before a relation is scored: its code, its number, relations in all.

        Raises:
          UserError: there is no such template, a statement is too long, a score is not a number, or
            `save_path` holds results of other settings or of another model.
        """
        checks.require_choice(REDUCTIONS, reduction=reduction)
        require_format(fmt)
        checks.require_int(subsample=subsample)
        if batch_size is not None:
            checks.require_int(1, checks.MAX_ROWS, batch_size=batch_size)
            self.scorer.batch_size = batch_size
        metrics = named(metric)
        own = [m for m in metrics.values() if callable(m)]  # which may do otherwise by now
        if not create_instance_table and not metrics:
            raise UserError("Without an instance table there must be a metric: give metric=...")
        for relation in dataset:
            chosen_templates(relation, template_index)
        results = DatasetResults(dataset.name, fmt=fmt)
        known: dict[str, Any] = dict.fromkeys(("parameters", "configuration"))
        if save_path is not None:
            with os_errors(save_path):  # before anything is scored, which can take minutes
                Path(save_path).mkdir(parents=True, exist_ok=True)
            results = DatasetResults.open(save_path, dataset.name, fmt)
            # What another model scored is not taken for its own, whatever the model is called.
            known = identity(self.scorer.model, self.scorer.params)
        for number, relation in enumerate(dataset):
            metadata = {
                **self._metadata(dataset, relation, template_index, reduction, subsample),
                **known,
                "metric_only": None if create_instance_table else sorted(metrics),
            }
            # Scored before with the same settings; only what the dataset says of it, such as its
            # domains, may be newer.
            if results.has(relation.code, metadata) and (create_instance_table or not own):
                results.describe(relation.code, _info(relation), metrics)
                continue
            if progress:
                progress(relation.code, number, len(dataset))
            result = self.evaluate_relation(
                relation,
                template_index,
                subsample=subsample,
                reduction=reduction,
                metadata=metadata,
            ).measured(metrics)
            results.add(result if create_instance_table else result.without_table())
        return results

    @checks.typed
    def evaluate_relation(
        self,
        relation: Relation,
        template_index: int | Sequence[int] | None = None,
        *,
        subsample: int | None = None,
        reduction: str | None = "sum",
        metadata: dict[str, Any] | None = None,
    ) -> RelationResult:
        """Scores one relation; rows are instance by instance, then template by template."""
        started = _now()
        templates = chosen_templates(relation, template_index)
        # Before the subsample: LM-PUB-QUIZ writes it as `num_original_instances`.
        whole = len(relation.instances)
        if subsample is not None:
            relation = relation.subsample(subsample)
        scores: list[Any] = []
        tokens: list[dict[str, Any]] = []
        # Whole instances at a time, so that a row of scores is never divided between two chunks.
        per_instance = len(templates) * len(relation.answer_labels)
        step = max(1, _CHUNK // per_instance)
        for start in range(0, len(relation.instances), step):
            part = list(statements(relation, *templates, start=start, stop=start + step))
            # The statements' order is instance, template, option, so a reshape to [rows, options]
            # is enough.
            token_scores = self._token_scores(relation, templates, start, part)
            if reduction is None:
                rows = self._raw(token_scores, part, len(relation.answer_labels))
                # Token scores have different lengths, and stay lists.
                scores += [row.pop("pll_scores") for row in rows]
                tokens += rows
            else:
                scores.append(
                    _reduced(token_scores, reduction).reshape(-1, len(relation.answer_labels))
                )
        table = _table(relation, templates)
        if tokens:
            table = [{**row, **more} for row, more in zip(table, tokens, strict=True)]
        # What follows is not among the settings that `has` compares: times, and what derives from
        # the dataset.
        return RelationResult(
            code=relation.code,
            table=table,
            scores=scores if reduction is None else np.concatenate(scores),
            metadata={
                **(metadata or {}),
                "num_original_instances": whole,
                "time_start": started,
                "time_end": _now(),
                "answer_space_labels": list(relation.answer_labels),
                "answer_space_ids": list(relation.answer_ids),
                "relation_info": _info(relation),
            },
        )

    def _token_scores(
        self, relation: Relation, templates: Sequence[int], start: int, part: Sequence[Statement]
    ) -> TokenScores:
        """Token scores of the statements of the instances from `start` on."""
        try:
            with self.on_mesh():
                scores = self.scorer.token_scores(part, self.conditional_score)
        except StatementError as e:
            where = _where(relation, templates, start, e.number)
            raise UserError(f"{where}: {e}; shorten the label or leave it out.") from e
        except UserError as e:
            raise UserError(f"{relation.code}: {e}; shorten the label or leave it out.") from e
        _require_finite(scores, part, lambda bad: _where(relation, templates, start, bad))
        return scores

    def _raw(
        self, scores: TokenScores, part: Sequence[Statement], options: int
    ) -> list[dict[str, Any]]:
        """Token scores and roles, a row for each `options` statements."""
        rows: list[dict[str, Any]] = []
        for i, statement in enumerate(part):
            if i % options == 0:
                rows.append({name: [] for name in _RAW})
            # Indices in results count the scored tokens alone, so roles are translated; those of
            # tokens without a score (GPT-2's first without BOS) drop out.
            kept = np.flatnonzero(scores.scored[i])
            place = {int(token): n for n, token in enumerate(kept)}
            subject, answer = self.scorer.roles(statement)
            taken = {*subject, *answer}
            row = rows[-1]
            row["pll_scores"].append([float(v) for v in scores.values[i, kept]])
            row["tokens"].append(self.scorer.pieces(scores.ids[i, kept]))
            row["sub_indices"].append([place[t] for t in subject if t in place])
            row["obj_indices"].append([place[t] for t in answer if t in place])
            row["template_indices"].append([n for t, n in place.items() if t not in taken])
        return rows

    def _metadata(
        self,
        dataset: Dataset,
        relation: Relation,
        template_index: Any,
        reduction: str | None,
        subsample: int | None,
    ) -> dict[str, Any]:
        return {
            "templates": list(relation.templates),
            "template_index": template_index,
            "model_name_or_path": self.model_name,
            "subsampled": subsample,
            **self.scorer.settings,
            "ckl_jax_version": __version__,
            "reduction": reduction,
            "conditional_score": self.conditional_score,
            "dataset_path": dataset.path,
            "dataset_name": dataset.name,
            "facts": relation.digest(),
            "model_family": type(self.scorer.model.config).__name__.removesuffix("Config").lower(),
            "num_params": sum(x.size for x in jax.tree.leaves(self.scorer.params)),
        }


@contextlib.contextmanager
def readable(*texts: Any) -> Iterator[None]:
    """A `with` block in which a model reads texts.

    Raises:
      UserError: one is blank or no text that UTF-8 can write, or takes more memory than there is.
    """
    for text in texts:
        if not isinstance(text, str) or not text.strip():
            raise UserError(f"{text!r} is no text; give one in quotation marks.")
        if encodable(text) != text:
            raise UserError(f"{text[:40]!r} has half of a surrogate pair, which is no character.")
    try:
        yield
    except RuntimeError as e:
        if not is_out_of_memory(e):
            raise
        raise UserError(
            f"A device has too little memory for a text of {max(map(len, texts)):,} characters; "
            "shorten it."
        ) from e


def _info(relation: Relation) -> dict[str, Any]:
    return {**relation.info, "cardinality": relation.cardinality}


def _now() -> str:
    return datetime.datetime.now().strftime("%Y-%m-%d %H:%M:%S")


def chosen_templates(relation: Relation, chosen: int | Sequence[int] | None) -> list[int]:
    """The numbers of the templates; None is all. Raises `UserError` for one that is not there."""
    if chosen is None:
        return list(range(len(relation.templates)))
    numbers = [chosen] if isinstance(chosen, int) else list(chosen)
    if not numbers:
        raise UserError("No template is chosen; give the number of one or more, or None for all.")
    if len(set(numbers)) < len(numbers):
        raise UserError(f"Templates {numbers} name one twice; give each once.")
    for number in numbers:
        if not 0 <= number < len(relation.templates):
            raise UserError(
                f"{relation.code} has no template {number}; it has {len(relation.templates)}, "
                "counted from 0."
            )
    return numbers


def _where(relation: Relation, templates: Sequence[int], start: int, number: int) -> str:
    """Which statement that is, the `number`-th of those from instance `start` on."""
    # The inverse of the order in `statements`: instance, template, option.
    row, option = divmod(int(number), len(relation.answer_labels))
    instance, template = divmod(row, len(templates))
    place = relation.instances[start + instance].where or f"instance {start + instance}"
    label = relation.answer_labels[option]
    return f"{relation.code}, {place}, template {templates[template]}, option {label[:40]!r}"


def _require_finite(
    scores: TokenScores, part: Sequence[Statement], where: Callable[[int], str]
) -> None:
    # np.argmax takes NaN for the maximum: it would silently name an option.
    if not np.isfinite(scores.values).all():
        # The first row that is not finite: False sorts before True.
        bad = int(np.argmin(np.isfinite(scores.values).all(axis=1)))
        raise UserError(
            f"{where(bad)}: the model's score of {part[bad].text!r} is not a number; its "
            "parameters are damaged, it has no row for a token, or float32 is needed."
        )


def _reduced(scores: TokenScores, reduction: str) -> np.ndarray:
    """[S] float64, summed in double precision as LM-PUB-QUIZ does."""
    # Values that are not scored are 0 and do not change the sum; the mean divides by the scored
    # ones.
    total = scores.values.astype(np.float64).sum(axis=1)
    return total if reduction == "sum" else total / scores.scored.sum(axis=1)


def _table(relation: Relation, templates: Sequence[int]) -> list[dict[str, Any]]:
    """The columns of results beside the scores, in LM-PUB-QUIZ's order."""
    return [
        {
            "sub_id": instance.sub_id,
            "sub_label": instance.sub_label,
            **instance.rest,
            "answer_idx": instance.answer_idx,
            "template_index": template,
            "instance_index": i,
        }
        for i, instance in enumerate(relation.instances)
        for template in templates
    ]
