"""Relational datasets in LM-PUB-QUIZ's layout: BEAR, BEAR-big, and your own.

A folder holds `<relation>.jsonl`, an instance a line (or parquet, see `data.facts.tables`), and
`metadata_relations.json` with templates and answer spaces (Ploner et al. 2024, arXiv:2408.15729,
and Wiland et al. 2024, arXiv:2404.04113). Labels and ids that look like numbers stay text.
"""

import dataclasses
import hashlib
import html
import json
import os
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ckl_jax import checks
from ckl_jax.data.facts.tables import table_files, table_rows
from ckl_jax.errors import UserError, nearest
from ckl_jax.files import NAMES_ONCE, read_json

METADATA = "metadata_relations.json"
SUBJECT, ANSWER = "[X]", "[Y]"
SINGLE, MULTIPLE = "single instance per answer", "multiple instances per answer"
_SPACE = ("answer_space_ids", "answer_space_labels")
_SUBSAMPLE_SEED = 23  # LM-PUB-QUIZ's
_KNOWN = ("bear", "bear-big")


@dataclasses.dataclass(frozen=True)
class Instance:
    """One fact: a subject and the index of its answer in the answer space.

    Attributes:
      answer_idx: of the right option.
      rest: other fields of the line, such as `sub_aliases`.
      where: "file, line n", for complaints.
    """

    sub_id: str
    sub_label: str
    answer_idx: int
    rest: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    where: str = dataclasses.field(default="", compare=False, repr=False)


@dataclasses.dataclass(frozen=True)
class Relation:
    """A relation: templates, answer options and instances.

    Attributes:
      code: its name, "P36".
      templates: statements with `[X]` and `[Y]`.
      answer_ids, answer_labels: the options, in the order of every score.
      info: further metadata, such as `{"domains": ["Geographic"]}`.
    """

    code: str
    templates: tuple[str, ...]
    answer_ids: tuple[str, ...]
    answer_labels: tuple[str, ...]
    instances: tuple[Instance, ...]
    info: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __repr__(self) -> str:
        sizes = f"{len(self.answer_labels):,} options, {len(self.instances):,} instances"
        return f"Relation({self.code!r}, {len(self.templates)} templates, {sizes})"

    @property
    def cardinality(self) -> str:
        """Whether an option answers several instances; the metadata take precedence."""
        if "cardinality" in self.info:
            return self.info["cardinality"]
        answers = [instance.answer_idx for instance in self.instances]
        return MULTIPLE if len(set(answers)) < len(answers) else SINGLE

    def take(self, rows: Sequence[int], keep_answer_space: bool = False) -> "Relation":
        """The instances at `rows`, in that order.

        Unless it is kept, the answer space shrinks to the options that are still right somewhere,
        in the order of their first appearance.

        Raises:
          UserError: there is no such row.
        """
        outside = [row for row in rows if not 0 <= row < len(self.instances)]
        if outside:
            raise UserError(
                f"{self.code} has no instance {outside[0]}; it has {len(self.instances)}."
            )
        chosen = [self.instances[row] for row in rows]
        # It is said now: fewer instances might look like another cardinality.
        info = {**self.info, "cardinality": self.cardinality}
        if keep_answer_space:
            return dataclasses.replace(self, instances=tuple(chosen), info=info)
        kept = list(dict.fromkeys(instance.answer_idx for instance in chosen))
        place = {old: new for new, old in enumerate(kept)}
        return dataclasses.replace(
            self,
            info=info,
            answer_ids=tuple(self.answer_ids[i] for i in kept),
            answer_labels=tuple(self.answer_labels[i] for i in kept),
            instances=tuple(dataclasses.replace(x, answer_idx=place[x.answer_idx]) for x in chosen),
        )

    def digest(self) -> str:
        """A hash of options and instances: other facts, or dates, under the same name differ."""
        facts = [(x.sub_id, x.sub_label, x.answer_idx, dict(x.rest)) for x in self.instances]
        said = json.dumps([self.answer_ids, self.answer_labels, facts], sort_keys=True)
        return hashlib.sha256(said.encode()).hexdigest()[:16]

    def about(self, subjects: Sequence[str]) -> "Relation":
        """The same options with generic subjects, such as "it", whose answer nobody knows.

        For biases (Ploner et al. 2024, A.3). The first option stands as the answer.
        """
        unknown = tuple(Instance(subject, subject, 0) for subject in subjects)
        info = {**self.info, "cardinality": self.cardinality}
        return dataclasses.replace(self, instances=unknown, info=info)

    def subsample(self, count: int) -> "Relation":
        """`count` instances with the whole answer space, drawn as LM-PUB-QUIZ draws them."""
        size = len(self.instances)
        if count >= size:
            return self
        rows = np.random.RandomState(_SUBSAMPLE_SEED).choice(size, count, replace=False)
        return self.take([int(row) for row in rows], keep_answer_space=True)


@dataclasses.dataclass(frozen=True)
class Dataset:
    """Relations by code.

    Attributes:
      name: of the folder.
      relations: in the natural order of their codes (P6, P19, P103).
    """

    name: str
    relations: Mapping[str, Relation]
    path: str | None = None

    @classmethod
    @checks.typed
    def from_path(
        cls,
        path: str | os.PathLike,
        relation_info: str | os.PathLike | Mapping[str, Mapping] | None = None,
        only: Iterable[str] = (),
    ) -> "Dataset":
        """Reads a folder.

        Args:
          path: the folder; "BEAR" or "BEAR-big" may be the copy that lm-pub-quiz has downloaded.
          relation_info: `{code: {"domains": [...]}}` or a JSON file of that, merged into each
            relation's info; None takes `relation_info.json` in the folder or beside it, if any.
          only: codes of the relations to read; () is all.

        Raises:
          UserError: a file is missing or wrong; the message names relation, line and field.
        """
        folder = _folder(path)
        inside = sorted(str(found.parent) for found in folder.glob(f"*/{METADATA}"))
        if inside and not (folder / METADATA).exists():
            raise UserError(
                f"{folder} is no dataset, but holds {', '.join(inside)}; give that folder."
            )
        metadata = _object(folder / METADATA)
        if relation_info is None:
            paths = (folder / "relation_info.json", folder.parent / "relation_info.json")
            relation_info = next((path for path in paths if path.exists()), {})
        if not isinstance(relation_info, Mapping):
            relation_info = _object(Path(relation_info))
        tables = table_files(folder)
        codes = sorted(tables, key=_natural)
        if not codes:
            raise UserError(f"{folder} holds no <relation>.jsonl; give a dataset's folder.")
        for code in only:
            if code not in codes:
                raise UserError(f"{folder} has no relation {code!r}.{nearest(code, codes)}")
        if left_out := [code for code in metadata if code not in codes]:
            names = ", ".join(left_out)
            warnings.warn(f"{folder} has no <relation>.jsonl of {names}.", stacklevel=3)
        wanted = set(only) or set(codes)
        return cls(
            name=name_of(folder),
            path=str(folder),
            relations={
                code: _relation(folder, tables[code], code, metadata, relation_info.get(code, {}))
                for code in codes
                if code in wanted
            },
        )

    @classmethod
    @checks.typed
    def from_name(cls, name: str, **options: Any) -> "Dataset":
        """`from_path` of a dataset in lm-pub-quiz's folder, by its name in any case.

        The folder is `datasets` in `LM_PUB_QUIZ_CACHE_ROOT`, or in `~/.lm-pub-quiz`. lm-pub-quiz
        downloads "BEAR" and "BEAR-big" into it; datasets of your own may lie there too.

        Raises:
          UserError: there is no such name, or no copy.
        """
        folder, lower = _downloaded(), name.lower()
        there = {path.name.lower(): path for path in folder.glob("*/") if path.is_dir()}
        if lower not in there and lower not in _KNOWN:
            names = ", ".join(sorted({"BEAR", "BEAR-big"} | (there.keys() - {*_KNOWN})))
            raise UserError(f"There is no dataset {name!r}; give {names}, or from_path.")
        return cls.from_path(there.get(lower, name), **options)

    def filter_subset(
        self,
        rows: Mapping[str, Sequence[int]],
        keep_answer_space: bool = False,
        name: str | None = None,
    ) -> "Dataset":
        """The named relations, each with the instances at the given rows; see `Relation.take`."""
        chosen = {c: self[c].take(rows[c], keep_answer_space) for c in rows}
        return dataclasses.replace(self, name=name or f"{self.name} (subset)", relations=chosen)

    def about(self, subjects: Sequence[str]) -> "Dataset":
        """Every relation with generic subjects; see `Relation.about`."""
        relations = {code: relation.about(subjects) for code, relation in self.relations.items()}
        return dataclasses.replace(self, name=f"{self.name} (generic)", relations=relations)

    def __repr__(self) -> str:
        instances = sum(len(relation.instances) for relation in self)
        return f"Dataset({self.name!r}, {len(self)} relations, {instances:,} instances)"

    def _repr_html_(self) -> str:
        """A row for each relation, in notebooks."""
        import pandas

        sizes = [
            (r.code, r.templates[0], len(r.templates), len(r.answer_labels), len(r.instances))
            for r in self
        ]
        columns = ["relation", "first template", "templates", "options", "instances"]
        table: Any = pandas.DataFrame(sizes, columns=columns).set_index("relation")
        return f"<p>{html.escape(repr(self))}</p>{table._repr_html_()}"

    def __iter__(self) -> Iterator[Relation]:
        return iter(self.relations.values())

    def __getitem__(self, code: str) -> Relation:
        if code not in self.relations:
            known = nearest(code, self.relations) or f" It has {', '.join(self.relations)}."
            raise UserError(f"{self.name} has no relation {code!r}.{known}")
        return self.relations[code]

    def __len__(self) -> int:
        return len(self.relations)


def _folder(path: str | os.PathLike) -> Path:
    """The folder; a name of an LM-PUB-QUIZ dataset means LM-PUB-QUIZ's cached copy."""
    name = os.fspath(path)
    if name.lower() not in _KNOWN or Path(name).exists():
        return Path(name)
    copy = _downloaded() / name.lower()
    if not copy.exists():
        raise UserError(
            f"There is no folder {name}, and lm-pub-quiz has no copy of it in {copy}; get it from "
            "github.com/lm-pub-quiz/BEAR and give its folder."
        )
    return copy


def _downloaded() -> Path:
    root = os.environ.get("LM_PUB_QUIZ_CACHE_ROOT") or Path.home() / ".lm-pub-quiz"
    return Path(root) / "datasets"


def name_of(path: str | os.PathLike) -> str:
    """The name of the dataset in a folder, which `Dataset.from_path` gives it."""
    folder = _folder(path)
    file = folder / "metadata.json"
    return str(_object(file).get("name", folder.name)) if file.exists() else folder.name


def _natural(name: str) -> list:
    return [
        (0, int(part), "") if part.isdigit() else (1, 0, part)
        for part in re.split(r"(\d+)", name)
        if part
    ]


def _object(file: Path) -> dict[str, Any]:
    value = read_json(file, NAMES_ONCE)
    if not isinstance(value, dict):
        raise UserError(f"{file}: give an object keyed by relation, not a {type(value).__name__}.")
    return value


def _relation(folder: Path, table: Path, code: str, metadata: Mapping, extra: Mapping) -> Relation:
    where = f"{folder / METADATA}, {code}"
    if code not in metadata:
        raise UserError(
            f"{folder / METADATA} has no entry {code!r}, but there is a {table.name}; add its "
            "templates or remove the file."
        )
    for name, entry in ((where, metadata[code]), (f"The relation info of {code}", extra)):
        if not isinstance(entry, Mapping):
            raise UserError(f"{name}: {entry!r} is not an object; give one, such as {{...}}.")
    info = dict(metadata[code])
    templates = _templates(where, info.pop("templates", None))
    ids, labels = _space(where, info)
    rows = list(_lines(table))
    if not rows:
        raise UserError(f"{table} is empty; add instances or remove the file.")
    if ids is None or labels is None:
        ids, labels = _space_of(rows)
    return Relation(
        code,
        templates,
        tuple(ids),
        tuple(labels),
        tuple(_instances(rows, ids, labels, code)),
        {**info, **extra},
    )


def _templates(where: str, templates: Any) -> tuple[str, ...]:
    if isinstance(templates, str) or not isinstance(templates, Sequence) or not templates:
        raise UserError(f"{where}: `templates` is {templates!r}; give a list of statements.")
    for number, template in enumerate(templates):
        if not isinstance(template, str) or ANSWER not in template:
            raise UserError(f"{where}: template {number}, {template!r}, has no {ANSWER}.")
        if SUBJECT not in template:
            said = f"{where}: template {number}, {template!r}, has no {SUBJECT}."
            warnings.warn(said, stacklevel=2)
    return tuple(templates)


def _space(where: str, info: dict) -> tuple[list[str] | None, list[str] | None]:
    """Removes the answer space from the metadata and returns it."""
    if "answer_space" in info:
        raise UserError(
            f"{where}: `answer_space` is not read by any version of LM-PUB-QUIZ; give "
            f"`{_SPACE[0]}` and `{_SPACE[1]}`, or neither."
        )
    space = [info.pop(name, None) for name in _SPACE]
    if space == [None, None]:
        return None, None
    for name, values in zip(_SPACE, space, strict=True):
        listed = isinstance(values, list)
        bad = [v for v in values if not _is_label(v)] if listed else [values]
        if bad:
            raise UserError(
                f"{where}: `{name}` {'holds' if listed else 'is'} {_short(bad[0])}; give a list of "
                "texts, none of them empty, for both or for neither of the two."
            )
    ids, labels = space
    if len(ids) != len(labels):
        raise UserError(f"{where}: {len(ids)} answer_space_ids but {len(labels)} labels.")
    if len(set(labels)) < len(labels):
        twice = next(label for i, label in enumerate(labels) if label in labels[:i])
        warnings.warn(f"{where}: two options are called {twice!r}; they score alike.", stacklevel=2)
    if len(set(ids)) < len(ids):
        raise UserError(f"{where}: an id occurs twice in `{_SPACE[0]}`.")
    return ids, labels


def _is_label(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 60 else f"{text[:57]}..."


def _lines(file: Path) -> Iterator[tuple[str, dict]]:
    """("file, line n", object) of each non-blank line."""
    for where, row in table_rows(file):
        for field in ("sub_id", "sub_label", "obj_id", "obj_label"):
            if row.get(field, "x") == "" and field == "sub_label":  # BEAR-big has one
                warnings.warn(f"{where}: `sub_label` is empty; it is scored so.", stacklevel=2)
            elif field in row and not _is_label(row[field]):
                quote = ", in quotation marks" if isinstance(row[field], (int, float)) else ""
                raise UserError(
                    f"{where}: `{field}` is {row[field]!r}; give a text that is not empty{quote}."
                )
        for field in ("sub_id", "sub_label"):
            if field not in row:
                raise UserError(f"{where}: `{field}` is missing.")
        yield where, row


def _space_of(rows: Sequence[tuple[str, dict]]) -> tuple[list[str], list[str]]:
    """Distinct objects in the order of their first appearance, with their first label."""
    labels: dict[str, str] = {}
    for where, row in rows:
        for field in ("obj_id", "obj_label"):
            if field not in row:
                raise UserError(
                    f"{where}: `{field}` is missing; without it the metadata must give the answer "
                    "space and the line an `answer_idx`."
                )
        labels.setdefault(row["obj_id"], row["obj_label"])
    return list(labels), list(labels.values())


def _instances(
    rows: Iterable[tuple[str, dict[str, Any]]],
    ids: Sequence[str],
    labels: Sequence[str],
    code: str,
) -> Iterator[Instance]:
    place = {name: i for i, name in enumerate(ids)}
    known = ("sub_id", "sub_label", "obj_id", "obj_label", "answer_idx")
    for where, row in rows:
        index = row.get("answer_idx", place.get(row.get("obj_id", "")))
        if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < len(ids):
            raise UserError(
                f"{where}: the answer {row.get('answer_idx', row.get('obj_id'))!r} is not in the "
                f"answer space of {code}, which has {len(ids)} options."
            )
        if "obj_id" in row and ids[index] != row["obj_id"]:
            raise UserError(
                f"{where}: `answer_idx` {index} is {ids[index]!r}, but `obj_id` is "
                f"{row['obj_id']!r}."
            )
        if row.get("obj_label", labels[index]) != labels[index]:
            raise UserError(
                f"{where}: `obj_label` is {row['obj_label']!r}, but {ids[index]!r} is "
                f"{labels[index]!r} elsewhere; give one id one label."
            )
        rest = {k: v for k, v in row.items() if k not in known}
        yield Instance(row["sub_id"], row["sub_label"], index, rest, where)
