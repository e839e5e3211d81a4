"""Training and evaluation data of `ckl temporalwiki`, built once from snapshots.

ROOT/dumps/                    the simulated world's, where no snapshots are given
ROOT/data/<interval>/diffset, probes    see docs/dumps.md
ROOT/data/<date>/              the text of a whole snapshot
ROOT/data/rows/<interval>/     cached tasks: d1, what is new; whole, all of the new snapshot
ROOT/data/rows/first/          cached task d0: the first snapshot
ROOT/data/rows/running_text/   cached tasks of which words are measured, where asked for
ROOT/data/overlap.json         how much of the simulated world's probes stands in its text
ROOT/probes/                   the probes of all intervals, by the files' published columns
"""

import csv
import dataclasses
import itertools
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ckl_jax import files
from ckl_jax.analysis import labels
from ckl_jax.data.facts import overlap
from ckl_jax.data.facts.fact_files import CLASSES, read_probe_csv
from ckl_jax.data.facts.wikidata_json import FactRules
from ckl_jax.data.process_pool import ChangedFile, Progress, no_progress
from ckl_jax.data.tasks.cached import CachedTask
from ckl_jax.data.tasks.causal import document_text, prepare_rows
from ckl_jax.data.text.documents import read_documents
from ckl_jax.data.text.vocabularies import train_vocabulary
from ckl_jax.errors import UserError
from ckl_jax.files import read_json_object
from ckl_jax.papers.temporalwiki.analysis.results import NEW_TEXT, OLD_TEXT, OVERLAP
from ckl_jax.papers.temporalwiki.data import checksums, diffsets, probes
from ckl_jax.papers.temporalwiki.data.nondiffset import write_nondiffset
from ckl_jax.papers.temporalwiki.data.probe_rows import Job
from ckl_jax.papers.temporalwiki.data.snapshots import Interval, Snapshot
from ckl_jax.papers.temporalwiki.settings import Updates

FIRST = "first"
RUNNING_TEXT = "running_text"
TOO_SHORT = "too little new text to train on"
_OF_TEXT = ("legacy", "unsorted", "templates")  # settings of diffsets, and of probes
_OF_JOB = ("facts", "seed", "subject_cap", "relation_cap", "page_map", "properties")


@dataclasses.dataclass(frozen=True)
class Drawn:
    """The source of a training's batches."""

    task: str  # "d1" or "whole" of an interval, or "d0"
    batch: int
    reviewed: float = 0.0  # old rows beside each new one


def _deleted(snapshot: Snapshot) -> UserError:
    """The error for dumps that are needed and have been deleted."""
    return UserError(
        f"The dumps of {snapshot.date} have been deleted or are not given, but more of their text "
        f"is needed; give {snapshot.was.partition(': ')[2]} again, or choose another --out."
    )


@dataclasses.dataclass(frozen=True)
class Data:
    """The files of a study and how they are built.

    Attributes:
      snapshots: in order.
    """

    updates: Updates
    snapshots: Sequence[Snapshot]
    progress: Progress = no_progress

    @property
    def root(self) -> Path:
        return self.updates.root

    @property
    def intervals(self) -> list[Interval]:
        return [Interval(*pair) for pair in itertools.pairwise(self.snapshots)]

    @property
    def workers(self) -> int:
        # Not `cpu_count`: a job on a cluster may use only some of the machine's cores.
        return self.updates.jobs or len(os.sched_getaffinity(0))

    def rows(self, name: str) -> Path:
        """The folder of an interval's cached tasks, or of the first snapshot's."""
        return self.root / "data" / "rows" / name

    def folder(self, interval: Interval, kind: str) -> Path:
        return self.root / "data" / interval.name / kind

    def _rest(self, interval: Interval) -> Path:
        """The file of what is in the new snapshot and not in the diffset."""
        return self.folder(interval, "rest.jsonl")

    def fact_files(self) -> list[str]:
        """The probe files of all intervals that contain a fact."""
        # Of all intervals, also those after a model's own: they measure its misalignment in time.
        paths = [self.fact_file(i, c) for i in self.intervals for c in CLASSES]
        return [str(path) for path in paths if path.is_file()]

    def fact_file(self, interval: Interval, kind: str) -> Path:
        """The probes of a class of an interval; missing where there is no such fact."""
        return self.root / "probes" / f"{interval.name}_{kind}.csv"

    def newest_facts(self) -> dict[str, int]:
        """The number of probes of each class of the newest interval."""
        paths = {kind: self.fact_file(self.intervals[-1], kind) for kind in CLASSES}
        return {
            k: sum(1 for _ in read_probe_csv(path)) for k, path in paths.items() if path.is_file()
        }

    def tuning_facts(self, interval: Interval, kind: str) -> Path:
        """The facts that are not probes; missing where there are no probes of the class."""
        name = f"lighttuning_{kind}_{self.updates.light_tuning}.csv"
        return self.folder(interval, "probes") / name

    # --- making them

    def check_dumps(self, whole: bool) -> None:
        """Raises `UserError` if dumps have been deleted before all was made of them.

        Args:
          whole: whether the later snapshots are trained on whole.
        """
        for snapshot in self.snapshots:
            mine = [i for i in self.intervals if snapshot in (i.old, i.new)]
            needed = [self.folder(i, kind) for i in mine for kind in ("diffset", "probes")]
            texts = self.updates.proper_nouns and not all(
                self._rest(i).exists() for i in mine if i.new == snapshot
            )
            text = self.root / "data" / snapshot.date
            if whole or texts or text.exists() or snapshot == self.snapshots[0]:
                needed.append(text)
            if snapshot.was and not all((f / "manifest.json").is_file() for f in needed):
                raise _deleted(snapshot)

    def build_interval(self, interval: Interval) -> None:
        """Builds the diffset and the probes of an interval, and prints their sizes."""
        diffset, out = self.folder(interval, "diffset"), self.folder(interval, "probes")
        if interval.old.was or interval.new.was:  # `check_dumps`
            facts, made = (read_json_object(folder / "manifest.json") for folder in (out, diffset))
        else:
            facts, made = self._build_interval(interval, diffset, out)
        self._publish(interval, facts["files"])
        sizes = [f"{row['final']:,} {name}" for name, row in facts["table_2"].items()]
        print(
            f"   {interval.name}  {labels.count(made['articles'], 'article')}, "
            f"{made['words']:,} words; facts: {', '.join(sizes)}",
            flush=True,
        )

    def _build_interval(
        self, interval: Interval, diffset: Path, out: Path
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """The manifests of the probes and of the diffset."""
        if not (diffset / "manifest.json").exists():
            both = interval.old, interval.new
            checksums.verify(path for s in both for path in (s.wikipedia, s.wikidata))
        # Deleted text is needed for the class of deleted facts, which the paper does not have.
        options = self._options(deletions=True)
        plan = diffsets.plan(interval.old.wikipedia, interval.new.wikipedia, diffset, options)
        made = self._diffset(plan, last=out)
        job = Job(
            old=interval.old.wikidata,
            new=interval.new.wikidata,
            diffset=str(diffset),
            wikipedia=interval.new.wikipedia,
            out=out,
            # The sitelinks of the wiki that the dumps are of.
            rules=FactRules(
                site=plan.new.wiki or "enwiki",
                language=self.updates.language,
                qualifiers=self.updates.qualifiers,
                aliases=self.updates.aliases,
            ),
            unchanged_fraction=self.updates.share,
            **{name: getattr(self.updates, name) for name in _OF_JOB},
        )
        return _anew(out, lambda: self._probes(job)), made

    def _options(self, **more: Any) -> diffsets.Options:
        return diffsets.Options(**more, **{name: getattr(self.updates, name) for name in _OF_TEXT})

    def _diffset(self, plan: diffsets.Plan, last: Path | None = None) -> dict[str, Any]:
        def make() -> dict[str, Any]:
            if self.updates.beam is None:
                return diffsets.build(plan, self.workers, progress=self.progress)
            from ckl_jax.papers.temporalwiki.data import beam_diffsets

            return beam_diffsets.build(plan, self.updates.beam)

        return _anew(plan.out, make, last)

    def _probes(self, job: Job) -> dict[str, Any]:
        updates = self.updates
        ends = {"fix_point": updates.fix_point, "light_tuning": updates.light_tuning}
        if updates.beam is None:
            return probes.build(job, self.workers, self.progress, **ends)
        from ckl_jax.papers.temporalwiki.data import beam_probes

        return beam_probes.build(job, updates.beam, **ends)

    def _publish(self, interval: Interval, names: Sequence[str]) -> None:
        """Copies the probes of an interval beside the others', under names with full dates."""
        for name in names:
            kind = name.rpartition("_")[2]
            source = self.folder(interval, "probes") / name
            target = self.root / "probes" / f"{interval.name}_{kind}"
            if kind.partition(".")[0] in CLASSES and _has_rows(source):
                content = source.read_bytes()
                # Unchanged files keep their time of change, so nothing that depends on them looks
                # newer.
                if not target.exists() or target.read_bytes() != content:
                    files.write_file(target, content)

    def whole_text(self, snapshot: Snapshot) -> Path:
        """Makes the text of a whole snapshot; returns its file of documents.

        Raises:
          UserError: its dumps have been deleted before its text was made.
        """
        out = self.root / "data" / snapshot.date
        if snapshot.was:
            if not (out / "manifest.json").is_file():
                raise _deleted(snapshot)
            made = read_json_object(out / "manifest.json")
        else:
            # The released function compares; of a whole snapshot there is nothing to compare.
            options = dataclasses.replace(self._options(), legacy=False)
            made = self._diffset(diffsets.plan(None, snapshot.wikipedia, out, options))
        print(
            f"   {snapshot.date}  {labels.count(made['articles'], 'article')}, "
            f"{made['words']:,} words",
            flush=True,
        )
        return out / made["documents"]

    def train_vocabulary(self, documents: Path, size: int) -> None:
        """Trains a vocabulary on the first snapshot, if there is none."""
        if not self.updates.vocabulary.exists():
            # Generators: the text of a snapshot is not held in memory.
            texts = map(document_text, read_documents(documents))
            lines = (line for text in texts for line in text.split("\n"))
            train_vocabulary(lines, self.updates.vocabulary, size)

    def new_documents(self, interval: Interval) -> Path:
        """The file of the diffset's documents."""
        folder = self.folder(interval, "diffset")
        return folder / read_json_object(folder / "manifest.json")["documents"]

    def make_rows(self, first: Path, whole: bool, vocabulary: Any, **settings: Any) -> None:
        """Makes the cached tasks.

        Args:
          first: documents of the first snapshot.
          whole: whether the later snapshots are trained on whole, too.
          **settings: of the rows; see `data.tasks.causal.prepare_rows`.
        """
        # Tasks that are there with the same settings are kept.
        prepare_rows({"d0": first}, self.rows(FIRST), vocabulary, **settings)
        for interval in self.intervals:
            sources = (
                {"d1": self.new_documents(interval)} if self._has_new_text(interval.name) else {}
            )
            if whole:
                sources["whole"] = self.whole_text(interval.new)
            prepare_rows(sources, self.rows(interval.name), vocabulary, **settings)

    def too_short(self, drawn: Mapping[str, Drawn]) -> dict[tuple[str, str], int]:
        """The rows of text that do not fill a batch, by method and interval (or `FIRST`).

        Nothing is said of rows that are not made yet.

        Args:
          drawn: of each method.
        """
        old = self._number_of_rows(FIRST, "d0") or 0
        short = {}
        for method, wanted in drawn.items():
            # An Initial model is trained once, on the first snapshot; the others on every interval.
            for name in [FIRST] if wanted.task == "d0" else [i.name for i in self.intervals]:
                rows = self._number_of_rows(name, wanted.task)
                if rows is not None:
                    # Review rows fill a batch too.
                    rows += min(old, int(rows * wanted.reviewed))
                    if rows < wanted.batch:
                        short[method, name] = rows
        return short

    def _number_of_rows(self, name: str, task: str) -> int | None:
        """The rows of a task; 0 where there is no text for it, None where it is not made yet."""
        if task == "d1" and not self._has_new_text(name):
            return 0
        return CachedTask.rows_in(self.rows(name), task)

    def _has_new_text(self, name: str) -> bool:
        """Whether an interval's diffset has any text, or is not made yet."""
        path = self.root / "data" / name / "diffset" / "manifest.json"
        return not path.is_file() or bool(read_json_object(path)["words"])

    def check_batches(self, drawn: Mapping[str, Drawn], begun: bool) -> None:
        """Refuses batches that some interval cannot fill, before anything is trained.

        No model is trained on an interval without new text; nor, once there are models, on one
        with less than a batch of it: with a smaller batch all of them would be others.

        Args:
          drawn: of each method.
          begun: whether there are models.

        Raises:
          UserError: there are such; all of them are in the message.
        """
        short, names = self.too_short(drawn), [interval.name for interval in self.intervals]
        never = {method for method in drawn if all((method, name) in short for name in names)}
        refused = {
            f"{name} {method}": rows
            for (method, name), rows in short.items()
            if name == FIRST or method in never or (rows and not begun)
        }
        if refused and not any(refused.values()):
            raise UserError(
                f"There is no new text to train on ({', '.join(refused)}); give snapshots further "
                "apart."
            )
        if refused:
            sizes = ", ".join(f"{name} {rows}" for name, rows in refused.items())
            raise UserError(
                f"BATCH_SIZE exceeds the rows of text to train on ({sizes}); give --gin.BATCH_SIZE="
                f"{min(filter(None, refused.values()))} or less, a smaller ROW_LENGTH, or "
                "snapshots further apart."
            )
        for name in names:
            if methods := [method for method in drawn if (method, name) in short]:
                print(f"   {name}  {TOO_SHORT}: without {', '.join(methods)}", flush=True)

    def measure_overlap(self, first: Path) -> None:
        """Compares all probes with the first snapshot and all diffsets, on one core."""
        texts = {self.snapshots[0].date: first}
        texts |= {interval.name: self.new_documents(interval) for interval in self.intervals}
        lines = {
            name: (line for d in read_documents(path) for line in d.text.splitlines())
            for name, path in texts.items()
        }
        items = {Path(path).stem: overlap.read_items(path) for path in self.fact_files()}
        files.write_json(self.root / OVERLAP, overlap.as_json(overlap.measure(items, lines)))

    def make_word_rows(self, vocabulary: Any, length: int) -> None:
        """Makes cached tasks of the new text of intervals and of the rest of their snapshots."""
        for interval in self.intervals:
            rest = self._rest(interval)
            # Written atomically: a file that is there is complete.
            if not rest.exists():
                whole, diffset = self.whole_text(interval.new), self.folder(interval, "diffset")
                write_nondiffset(whole, diffset, rest, seed=self.updates.seed)
            sources = {NEW_TEXT: self.new_documents(interval), OLD_TEXT: rest}
            if not self._has_new_text(interval.name):
                del sources[NEW_TEXT]
            sources = {f"{interval.name}_{kind}": path for kind, path in sources.items()}
            prepare_rows(sources, self.rows(RUNNING_TEXT), vocabulary, length, marks=True)


def _has_rows(path: Path) -> bool:
    """Whether a file of facts is not empty."""
    if path.suffix != ".csv":
        return os.path.getsize(path) > 0
    with files.os_errors(path, "read"), open(path, encoding="utf-8", newline="") as f:
        # The second line: the first one is the header.
        return next(itertools.islice(csv.reader(f), 1, None), None) is not None


def _anew(
    folder: Path, make: Callable[[], dict[str, Any]], last: Path | None = None
) -> dict[str, Any]:
    """Builds a folder, again if it was begun with a file that has changed since.

    Args:
      last: the folder that is built before anything is trained; by default this one.
    """
    try:
        return make()
    except ChangedFile as e:
        if ((last or folder) / "manifest.json").exists():  # and may have been trained on
            raise
        print(f"   {str(e).split(';')[0]}; it is begun anew", flush=True)
        shutil.rmtree(folder)
        return make()
