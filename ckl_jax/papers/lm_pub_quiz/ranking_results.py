"""Results of ranking on disk, in LM-PUB-QUIZ's layout, and their metrics.

A folder holds `<relation>_results.jsonl`, a row for each instance and template with the scores of
all options, and metadata. The released generation writes `metadata_results.json`, which is what is
written here; the development one `metadata.json` and `metadata_relations.json`, which is read too,
and so are the forms of before 2024-12.
"""

import collections
import contextlib
import dataclasses
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ckl_jax import checks
from ckl_jax.data.facts.relational import MULTIPLE, SINGLE
from ckl_jax.data.facts.tables import table_files, table_rows, write_table
from ckl_jax.errors import UserError, nearest
from ckl_jax.files import ANY_NUMBER, as_json, read_json_object, refuse_existing, write_json
from ckl_jax.papers.lm_pub_quiz import ranking_metrics as metrics

if TYPE_CHECKING:
    import pandas

METADATA = "metadata_results.json"
# Of the dataset as a whole, and by relation.
_DEVELOPMENT = ("metadata.json", "metadata_relations.json")
_SUFFIX = "_results"
# Parallel lists: what selects options must select from both.
_SPACE = ("answer_space_labels", "answer_space_ids")
# Columns that only results with token scores have, each a list with an entry for each option.
_RAW = ("tokens", "sub_indices", "obj_indices", "template_indices")
# What says when, or follows from the rest: not a difference of settings.
_VARIES = {*_SPACE, "metric_values", "time_start", "time_end", "num_original_instances"}
_VARIES |= {"relation_info", "ckl_jax_version", "dataset_path", "model_family", "num_params"}
# What fields of metadata and of rows are, where they are given.
_DIGESTS, _NAME = ("parameters", "configuration"), ("model_name_or_path",)  # of a model
_METADATA_KINDS = {"relation_info": dict, "metric_values": dict, "templates": [str]}
_METADATA_KINDS |= dict.fromkeys(_SPACE, [str])
_ROW_KINDS = {"sub_id": str | int | None, "sub_label": str, "answer_idx": int}
_INDICES = ("template_index", "instance_index")  # in all rows, or in none
_CHANGED = {
    "parameters": "scored by other parameters of the model",
    "configuration": "scored by another configuration or tokenizer of the model",
    "facts": "scored with other subjects, answers or options",
}


@dataclasses.dataclass
class RelationResult:
    """The scores of one relation.

    Attributes:
      table: a dict for each of R rows: subject, `answer_idx`, `template_index`, ...
      scores: [R, K] float64; for token scores a list of R lists of K lists.
      metadata: settings, answer space and relation info, as they are written.
    """

    code: str
    table: list[dict[str, Any]]
    scores: Any
    metadata: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def answers(self) -> np.ndarray:
        """[R] int, the right options."""
        return np.array([row["answer_idx"] for row in self.table], int)

    @property
    def answer_space(self) -> list[str]:
        """The labels of the options."""
        return self.metadata.get("answer_space_labels") or []

    @property
    def relation_info(self) -> Mapping[str, Any]:
        return self.metadata.get("relation_info") or {}

    @property
    def instance_table(self) -> "pandas.DataFrame":
        """The rows with their scores as a pandas DataFrame, by LM-PUB-QUIZ's name."""
        import pandas

        return pandas.DataFrame(list(self.rows()))

    @property
    def is_raw(self) -> bool:
        """Whether it holds token scores."""
        # Token scores differ in length and cannot be an array.
        return not isinstance(self.scores, np.ndarray)

    def reduced(self, reduction: str = "sum") -> "RelationResult":
        """The same with one score an option: the sum or mean of its token scores."""
        if not self.is_raw:
            return self
        checks.require_choice(("sum", "mean"), reduction=reduction)
        reduce = np.sum if reduction == "sum" else np.mean
        # Of float64 values (JSON's), so the sum is in double precision, as in `ranking._reduced`.
        scores = [[float(reduce(np.asarray(option))) for option in row] for row in self.scores]
        # Token roles mean nothing without the tokens' scores.
        table = [{k: v for k, v in row.items() if k not in _RAW} for row in self.table]
        metadata = {**self.metadata, "reduction": reduction}
        return RelationResult(self.code, table, np.array(scores), metadata)

    def filter_subset(
        self, indices: Sequence[int], *, keep_answer_space: bool = False
    ) -> "RelationResult":
        """Some rows, by their numbers; without `keep_answer_space` only the answers of these rows
        stay options, in the order of the rows.

        Raises:
          UserError: there is no such row.
        """
        if wrong := [i for i in indices if not 0 <= i < len(self.table)]:
            raise UserError(f"{self.code} has no row {wrong[0]}; it has {len(self.table)}.")
        table = [dict(self.table[i]) for i in indices]
        scores = [self.scores[i] for i in indices]
        as_scores = list if self.is_raw else np.array
        if keep_answer_space:
            return dataclasses.replace(self, table=table, scores=as_scores(scores))
        # The order in which answers first appear, which is LM-PUB-QUIZ's rule for a dataset's
        # subset too.
        kept = list(dict.fromkeys(row["answer_idx"] for row in table))
        for row in table:
            # Renumbered, because the right option's column has moved.
            row["answer_idx"] = kept.index(row["answer_idx"])
            row |= {name: [row[name][i] for i in kept] for name in _RAW if name in row}
        options = as_scores([[s[i] for i in kept] for s in scores])
        space = {
            name: [self.metadata[name][i] for i in kept] for name in _SPACE if name in self.metadata
        }
        return RelationResult(self.code, table, options, {**self.metadata, **space})

    @property
    def support(self) -> int:
        """How many rows there are, or were where only metrics are kept."""
        return len(self.table) or self.metadata.get("metric_values", {}).get("support", 0)

    def get_metric(self, name: metrics.Metric) -> Any:
        """A metric of `ranking_metrics` by name, a function of scores [R, K] and answers [R], or
        "support"; token scores are summed first.

        Raises:
          UserError: only other metrics are kept, or there is none of that name.
        """
        if name == "support":
            return self.support
        if self.table:
            return metrics.metric(name)(self.reduced().scores, self.answers)
        kept = self.metadata.get("metric_values", {})
        (key,) = metrics.named(name, kept)
        if key not in kept:
            raise UserError(f"{self.code} keeps no scores, but {', '.join(kept)}; not {key}.")
        return kept[key]

    def measured(self, wanted: Mapping[str, metrics.Metric]) -> "RelationResult":
        """The same with the values of metrics in its metadata, as JSON."""
        if not wanted:
            return self
        values = {name: _plain(self.get_metric(of)) for name, of in wanted.items()}
        values |= {"support": self.support}
        return dataclasses.replace(self, metadata={**self.metadata, "metric_values": values})

    def without_table(self) -> "RelationResult":
        """The metadata alone."""
        return dataclasses.replace(self, table=[], scores=np.zeros((0, 0)))

    def __repr__(self) -> str:
        return f"RelationResult({self.code!r}, {self.support:,} rows)"

    def answer_bias(self) -> dict[int, np.ndarray]:
        """Mean probability of each option over all subjects (Ploner et al. 2024, section 3.2).

        Returns:
          {template: [K]}, the softmax over the options, averaged over the template's subjects.
          Where every option is right as often, the ideal is 1 / K.
        """
        scores = self.reduced().scores
        # Results from before LM-PUB-QUIZ 0.3.2 have one template and no such column.
        templates = np.array([row.get("template_index", 0) for row in self.table])
        return {
            int(t): metrics.softmax(scores[templates == t]).mean(axis=0)
            for t in np.unique(templates)
        }

    @property
    def cardinality(self) -> str:
        """As the dataset says it, else from the instances of one template.

        (LM-PUB-QUIZ counts over all templates, by which every relation has several instances an
        answer.)
        """
        if "cardinality" in self.relation_info:
            return self.relation_info["cardinality"]
        by_template = collections.defaultdict(list)
        for row in self.table:
            by_template[row.get("template_index", 0)].append(row["answer_idx"])
        # All templates have the same instances, so one of them is enough.
        answers = next(iter(by_template.values()))
        return MULTIPLE if len(set(answers)) < len(answers) else SINGLE

    def groups(self, key: str) -> list[str]:
        """The relation's groups by a key of its info, such as "domains" or "cardinality".

        Raises:
          UserError: its info lacks the key.
        """
        if key == "cardinality":
            return [self.cardinality]
        if key not in self.relation_info:
            raise UserError(
                f"{self.code} has no {key!r} in its relation info; give a `relation_info` with it, "
                f"or choose from {', '.join(self.relation_info) or 'none'}."
                f"{nearest(key, self.relation_info)}"
            )
        value = self.relation_info[key]
        groups = [value] if isinstance(value, str) else value
        if not isinstance(groups, list | tuple) or not all(isinstance(g, str) for g in groups):
            raise UserError(f"{key!r} of {self.code} is {value!r}; give names of groups.")
        return list(groups)

    def rows(self) -> Iterator[dict[str, Any]]:
        """The rows of its file."""
        for row, scores in zip(self.table, self.scores, strict=True):
            yield {**row, "pll_scores": _rounded(scores)}


def _plain(value: Any) -> Any:
    """The value of a metric as JSON has it."""
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    return np.asarray(value).tolist() if isinstance(value, np.ndarray | np.generic) else value


def _rounded(scores: Any) -> list:
    if isinstance(scores, np.ndarray):
        # LM-PUB-QUIZ writes 10 decimals; float32 sums need no more, and files stay small.
        return [round(s, 10) for s in scores.tolist()]
    return [_rounded(s) if isinstance(s, list) else round(float(s), 10) for s in scores]


class DatasetResults:
    """Results by relation."""

    def __init__(
        self,
        name: str,
        relations: Sequence[RelationResult] = (),
        path: Path | None = None,
        fmt: str = "jsonl",
    ):
        self.name, self.path, self.fmt = name, path, fmt
        self.relations = {relation.code: relation for relation in relations}

    @classmethod
    @checks.typed
    def from_path(
        cls, path: str | os.PathLike, relation_info: Mapping[str, Mapping[str, Any]] | None = None
    ) -> "DatasetResults":
        """Reads a folder, of either generation.

        Args:
          relation_info: {relation: {"domains": [...]}}, laid over what the results say.

        Raises:
          UserError: the folder holds no results, or a file is malformed.
        """
        folder = Path(path)
        metadata = _read_metadata(folder)
        if metadata is None:
            raise UserError(f"{folder} holds no {METADATA}; give a folder of ranking results.")
        results, tables = [], table_files(folder, _SUFFIX)
        for code, own in metadata.items():
            extra = (relation_info or {}).get(code, {})
            # Key by key, the caller's last: domains can be added, or replaced, after scoring.
            own = {**own, "relation_info": {**(own.get("relation_info") or {}), **extra}}
            # Metadata without a table are skipped, as LM-PUB-QUIZ does with a dataset's relations.
            if code in tables:
                results.append(_read_relation(tables[code], code, own))
            elif own.get("metric_only"):
                results.append(RelationResult(code, [], np.zeros((0, 0)), own))
        names = [r.metadata.get("dataset_name") for r in results]
        # The first name that is not empty; older files say none, and are called after the folder.
        return cls(next(filter(None, names), folder.name), results, folder)

    @classmethod
    def open(cls, path: str | os.PathLike, name: str, fmt: str = "jsonl") -> "DatasetResults":
        """A folder to write to: with the relations that are finished, or new.

        Raises:
          UserError: it holds results that are not ours, or a file is malformed.
        """
        folder = Path(path)
        if (folder / METADATA).exists():
            results = cls.from_path(folder)
            results.name, results.fmt = name, fmt
            return results
        for table in table_files(folder, _SUFFIX).values():
            refuse_existing(table, None)
        write_json(folder / METADATA, {})  # first: from here on all results in it are ours
        return cls(name, path=folder, fmt=fmt)

    def has(self, code: str, settings: Mapping[str, Any]) -> bool:
        """Whether a relation is there with these settings.

        Raises:
          UserError: it is there with others, or another relation by another model.
        """
        if code not in self.relations:
            held = {name: result.metadata for name, result in self.relations.items()}
            _refuse_other_models(self.path, held, settings)
            return False
        old = self.relations[code].metadata
        for key in sorted(settings.keys() - _VARIES):
            # Compared as JSON: a tuple of templates comes back as a list.
            if as_json(old.get(key)) != as_json(settings[key]):
                was = f"scored with {key}={old.get(key)!r}, now it is {settings[key]!r}"
                unknown = key in _CHANGED and key not in old
                was = f"and no record of its {key}" if unknown else _CHANGED.get(key, was)
                raise UserError(
                    f"{self.path} holds {code} {was}; choose another folder for the results, or "
                    "remove that one."
                )
        return True

    def describe(
        self, code: str, info: Mapping[str, Any], wanted: Mapping[str, metrics.Metric]
    ) -> None:
        """Lays what a dataset says of a relation today, such as its domains, over what is kept.

        The `wanted` metrics are computed anew, of results that have a table.
        """
        kept = self.relations[code]
        result = kept.measured(wanted) if kept.table else kept
        metadata = {**result.metadata, "relation_info": {**kept.relation_info, **info}}
        if metadata != kept.metadata:
            self.add(dataclasses.replace(result, metadata=metadata))

    def add(self, result: RelationResult) -> None:
        """Adds a relation, and writes it if the results have a folder."""
        self.relations[result.code] = result
        if self.path is not None:
            self._write(self.path, result)

    def save(self, path: str | os.PathLike, fmt: str = "jsonl") -> None:
        """Writes all relations to a folder, as "jsonl" or "parquet".

        Raises:
          UserError: the folder cannot be written, or holds results of another model.
        """
        self.fmt = fmt
        held = _read_metadata(Path(path)) or {}
        for result in self.relations.values():
            _refuse_other_models(path, held, result.metadata)
        for result in self.relations.values():
            self._write(Path(path), result)

    def _write(self, folder: Path, result: RelationResult) -> None:
        values = {}
        if result.table:
            write_table(folder / f"{result.code}{_SUFFIX}", result.rows(), self.fmt)
            values = {"accuracy": result.get_metric("accuracy"), "support": result.support}
        # Last: what the metadata name is complete.
        values |= result.metadata.get("metric_values", {})
        # Relations are written one by one, as they are done, into one file of metadata.
        known = _read_metadata(folder) or {}
        known[result.code] = {**result.metadata, "metric_values": values}
        write_json(folder / METADATA, known)

    def filter_subset(
        self, indices: Mapping[str, Sequence[int]], *, keep_answer_space: bool = False
    ) -> "DatasetResults":
        """Some rows of some relations, see `RelationResult.filter_subset`."""
        results = [
            self[code].filter_subset(rows, keep_answer_space=keep_answer_space)
            for code, rows in indices.items()
        ]
        return DatasetResults(self.name, results)

    def reduced(self, reduction: str = "sum") -> "DatasetResults":
        """The same with one score an option, see `RelationResult.reduced`."""
        return DatasetResults(self.name, [result.reduced(reduction) for result in self])

    def get_metadata(self) -> dict[str, Any]:
        """The metadata that all relations have alike."""
        several = [result.metadata for result in self]
        return {k: v for k, v in several[0].items() if all(m.get(k) == v for m in several)}

    def joined_instance_table(self) -> "pandas.DataFrame":
        """The rows of all relations as a pandas DataFrame, by relation and number."""
        import pandas

        tables = {result.code: result.instance_table for result in self}
        return pandas.concat(tables, names=["relation"])

    def get_metrics(
        self,
        names: metrics.Metric | Sequence[metrics.Metric],
        accumulate: bool | str | None = True,
        divide_support: bool = True,
    ) -> dict[str, dict[str, Any]]:
        """Metrics of relations, or their means.

        Args:
          names: of metrics, see `ranking_metrics.METRICS`, or functions of scores [R, K] and
            answers [R]; "support" is there without being named.
          accumulate: True is the mean over all, weighted by support; "domains", "cardinality" or
            another key of the relation info is the mean by group; False or None is none.
          divide_support: a relation of several groups counts in each with a fraction of its
            support.

        Returns:
          {"overall", group or relation: {metric: value, "support": n}}.

        Raises:
          UserError: a metric or key is unknown, or there are no relations.
        """
        if not self.relations:
            raise UserError("There are no results to take a metric of.")
        support = {code: r.support for code, r in self.relations.items()}
        groups: dict[str, dict[str, Any]] = {}
        kept = {k for r in self.relations.values() for k in r.metadata.get("metric_values", ())}
        for name, metric in metrics.named(names, kept).items():
            values = {code: r.get_metric(metric) for code, r in self.relations.items()}
            for group, entry in self._groups(values, support, accumulate, divide_support).items():
                groups.setdefault(group, {})[name] = entry["value"]
                # The same for every metric of a group.
                groups[group]["support"] = entry["support"]
        return groups

    def _groups(
        self,
        values: dict[str, Any],
        support: dict[str, Any],
        accumulate: bool | str | None,
        divide_support: bool,
    ) -> dict[str, dict[str, Any]]:
        if not accumulate:
            return {c: {"value": v, "support": support[c]} for c, v in values.items()}
        groups = None
        if accumulate is not True:
            groups = {code: r.groups(accumulate) for code, r in self.relations.items()}
        return metrics.accumulate(values, support, groups, divide_support)

    def scores(self, by: str | None = None) -> "pandas.DataFrame":
        """Accuracies as a pandas DataFrame, a row for each group, or for each relation.

        Args:
          by: "domains", "cardinality", another key of the relation info, or None.
        """
        import pandas

        groups = self.get_metrics("accuracy", accumulate=by)
        return pandas.DataFrame.from_dict(groups, orient="index").rename_axis(by or "relation")

    def __repr__(self) -> str:
        accuracy = ""
        with contextlib.suppress(UserError):  # other metrics may be all that is kept
            accuracy = f", accuracy {self.get_metrics('accuracy')['overall']['accuracy']:.1%}"
        return f"DatasetResults({self.name!r}, {len(self)} relations{accuracy})"

    def _repr_html_(self) -> str:
        from markupsafe import escape

        table = ""
        with contextlib.suppress(UserError):
            table = self.scores()._repr_html_()  # type: ignore[operator]
        return f"<p>{escape(repr(self))}</p>{table}"

    def __getitem__(self, code: str) -> RelationResult:
        if code not in self.relations:
            known = nearest(str(code), self.relations) or f" They have {', '.join(self.relations)}."
            raise UserError(f"The results of {self.name} have no relation {code!r}.{known}")
        return self.relations[code]

    def __iter__(self) -> Iterator[RelationResult]:
        return iter(self.relations.values())

    def __len__(self) -> int:
        return len(self.relations)


def _refuse_other_models(
    folder: str | os.PathLike | None, held: Mapping[str, Mapping], ours: Mapping[str, Any]
) -> None:
    """One accuracy is computed of all results in a folder."""
    for code, theirs in held.items():
        digests = [name for name in _DIGESTS if theirs.get(name) and ours.get(name)]
        differ = [name for name in digests or _NAME if theirs.get(name) != ours.get(name)]
        if differ:
            raise UserError(
                f"{folder} holds {code} of another model ({differ[0]} is {theirs.get(differ[0])!r},"
                f" not {ours.get(differ[0])!r}); choose another folder for the results."
            )


def _read_metadata(folder: Path) -> dict[str, dict[str, Any]] | None:
    whole, relations = (folder / name for name in _DEVELOPMENT)
    common = {}
    if (folder / METADATA).exists():
        relations = folder / METADATA
    elif not relations.exists():
        return None
    elif whole.exists():
        common = read_json_object(whole, ANY_NUMBER)
        # The released name of the same entry, which the rest of this module reads.
        common = {"model_name_or_path": common.get("model_name"), **common}
    by_relation = read_json_object(relations, ANY_NUMBER)
    for code, own in by_relation.items():
        given = own.keys() & _METADATA_KINDS if isinstance(own, dict) else ()
        kinds = {name: _METADATA_KINDS[name] for name in given if own[name] is not None}
        checks.require_fields(f"{relations}, {code}", own, kinds, "score the relation again")
        checks.refuse_newer(f"{relations}, {code},", own.get("ckl_jax_version"))
    return {code: {**common, **own} for code, own in by_relation.items()}


def _read_relation(file: Path, code: str, metadata: dict[str, Any]) -> RelationResult:
    rows, scores = [], []
    for where, record in table_rows(file):
        try:
            row = _current(record, metadata)
            given, _ = row.pop("pll_scores"), row["sub_id"]
        except (LookupError, TypeError, ValueError) as e:
            raise UserError(f"{where}: not a row of results ({type(e).__name__}: {e}).") from e
        kinds = _ROW_KINDS | {name: int for name in _INDICES if name in row}
        checks.require_fields(where, row, kinds, "score the relation again")
        if not _are_scores(given) or not 0 <= row["answer_idx"] < len(given):
            raise UserError(f"{where}: 'pll_scores' are not numbers, one for each option.")
        rows.append(row)
        scores.append(given)
    if not rows:
        raise UserError(f"{file} is empty; score {code} again.")
    # Rows are written before the metadata, so fewer rows than the metadata say were lost later,
    # e.g. in a copy that was cut off.
    support = (metadata.get("metric_values") or {}).get("support")
    if isinstance(support, int) and support != len(rows):
        raise UserError(
            f"{file} has {len(rows)} rows, where {METADATA} says {support}: it is cut off; remove "
            f"it, and the next start scores {code} again."
        )
    for name in _INDICES:
        if len({name in row for row in rows}) > 1:
            raise UserError(f"{file}: only some rows have {name!r}; score {code} again.")
    of_tokens = {isinstance(row[0], list) for row in scores}
    if len(of_tokens) > 1:
        raise UserError(f"{file}: only some rows have scores of tokens; score {code} again.")
    # np.array of rows with different lengths would raise a message about shapes.
    widths = {len(row) for row in scores}
    if labels := metadata.get("answer_space_labels"):
        widths.add(len(labels))
    if len(widths) > 1:
        raise UserError(f"{file}: rows have {sorted(widths)} scores; all must have as many.")
    of_options = scores if of_tokens.pop() else np.array(scores, float)
    return RelationResult(code, rows, of_options, metadata)


def _are_scores(given: Any) -> bool:
    """Whether they are numbers, or lists of numbers, one for each option."""
    if not isinstance(given, list) or len({isinstance(s, list) for s in given}) != 1:
        return False
    numbers = itertools.chain.from_iterable(given) if isinstance(given[0], list) else given
    return all(isinstance(x, int | float) and not isinstance(x, bool) for x in numbers)


def _current(row: dict[str, Any], metadata: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the development version or of an older one, in the released version's words."""
    row = dict(row)
    # The template's text and the options' labels, which the metadata hold once for all rows.
    for unneeded in ("template", "answers"):
        row.pop(unneeded, None)
    if "subject" in row:
        row["sub_label"] = row.pop("subject")
    if "instance" in row and "instance_index" not in row:
        row["instance_index"] = row.pop("instance")
    # Of before 2024-12: options sorted by score with surprisals (negative log likelihoods); put
    # back into the order of the answer space.
    if "answer_idx" not in row and "predicted_tokens" in row:  # surprisals in ranked order
        labels = metadata.get("answer_space_labels", [])
        by_label = dict(zip(row.pop("predicted_tokens"), row["pll_scores"], strict=True))
        row["pll_scores"] = [-by_label[label] for label in labels]
        row["answer_idx"] = metadata.get("answer_space_ids", []).index(row["obj_id"])
    return row
