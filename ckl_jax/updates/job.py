"""One update of a model: items, training, evaluation before and after, verdict, report.

Each step leaves a file, and a step whose file is there is not done again: a command that was killed
goes on where it was.
"""

import collections
import contextlib
import dataclasses
import datetime
import filecmp
import functools
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ckl_jax import __version__, files
from ckl_jax.analysis import gate, labels, review_page
from ckl_jax.checkpoints.restore import complete_steps
from ckl_jax.data import watching
from ckl_jax.data.buckets import hash64
from ckl_jax.data.text.document_files import read_place
from ckl_jax.data.text.documents import Document, spread, write_documents
from ckl_jax.errors import UserError, if_missing
from ckl_jax.parallel import processes
from ckl_jax.train.subprocess_runs import run_all
from ckl_jax.updates import (
    facts_file,
    item_review,
    items,
    ledger,
    new_text,
    records,
    scores,
    training,
)
from ckl_jax.updates.opening import open_registry, require_model
from ckl_jax.updates.registry import Registry, run_hook
from ckl_jax.updates.settings import Update, as_option, flag

_HELD_OUT = 20  # one document in so many is held back
_FEW = 10  # with fewer documents none is
_MIN_WORDS = 50
Progress = Callable[[int, int, str], None]
_FIELDS = ("text_field", "date_field", "title_field")
_READING = ("documents", *_FIELDS, "since", "facts", "questions", "max_items", "seed", "base")
_TRAINING = ("method", "epochs", "batch_size", "length", "learning_rate", "bindings")
# Files of an update, and the settings that it must go on with once they are there.
_FIXED = {
    "sentences.npy": _READING,
    "before.json": ("harness", "harness_tasks", "harness_limit"),
    "train/summary.json": _TRAINING,
    "model/config.json": ("adapter",),
}
# Where things are and what follows a verdict; all else decides what becomes of an update.
_ASIDE = ("out", "documents", "model", "on_ship", "keep")


def update(settings: Update, progress: Progress, say: Callable[[str], None] = print) -> int:
    """Runs or resumes an update; returns the exit code of its verdict.

    Raises:
      UserError: bad input, with nothing lost; see the modules of each step.
    """
    with _locked(settings, progress, say) as started:
        return started.run()


def review(settings: Update, progress: Progress, say: Callable[[str], None] = print) -> int:
    """Begins an update: makes its items, and a page on which a person reviews them.

    Returns:
      0, or the exit code of an update without new text.

    Raises:
      UserError: bad input; or the items are in use already.
    """
    if settings.decisions:
        raise UserError("--review writes a page, --decisions goes on from it; give one of them.")
    with _locked(settings, progress, say) as started:
        return started.review()


def watch(
    settings: Update,
    seconds: float,
    progress: Progress,
    say: Callable[[str], None] = print,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Runs an update whenever the documents change, until it is stopped.

    Args:
      seconds: between two looks; files that changed in between are taken for unfinished.

    Raises:
      UserError: bad settings; of bad documents it is said, and the next change waited for.
    """
    _Run(settings, open_registry(settings), progress, say)  # refuses bad settings now
    place = Path(settings.documents)
    watching.watch(place, seconds, lambda: update(settings, progress, say), say, sleep)


def describe(settings: Update, progress: Progress) -> tuple[int, list[str]]:
    """The plan of an update as lines, and 0; or 3 and why nothing is to learn. Writes nothing."""
    run = _Run(settings, open_registry(settings), progress, print)
    with tempfile.TemporaryDirectory() as scratch:
        run.folder = Path(scratch)
        try:
            run.read()
        except _NothingNew as e:
            return gate.EXIT_CODES[gate.TOO_FEW], [str(e)]
        run.make_items()
        probed = records.read_items(run.folder)
        plan = run.plan()
        plan = plan.with_rows(plan.tokens // plan.length)
    size = training.parameters(run.model)
    tokens = plan.epochs * plan.tokens
    seconds = 6 * tokens * size / training.speed()
    shown = (next((i for i in probed if i.tag == tag), None) for tag in items.TAGS)
    return 0, [
        *(f"  {i.tag}, such as: {i.question} ({i.answer})" for i in shown if i),
        f"{run.model}: {size:,} parameters.",
        f"Training by {settings.method} ({plan.gin_files[1]}): rows of {plan.length} tokens, "
        f"{plan.batch_size} a step, {plan.epochs} passes, rate {plan.learning_rate:g}.",
        f"About {tokens:,} tokens to train on, {6e-12 * tokens * size:,.3g} TFLOP: "
        f"{datetime.timedelta(seconds=round(seconds))} (h:mm:ss) if half of what this device "
        "does in a matrix product is reached; "
        f"{2e-9 * 2 * size:.2g} GB for the weights, at most {1.6e-8 * size:.2g} GB with gradients "
        "and moments of all parameters, and activations.",
    ]


@contextlib.contextmanager
def _locked(settings: Update, progress: Progress, say) -> Iterator["_Run"]:
    """The update, its folder locked; bad settings are refused before anything is written."""
    registry = open_registry(settings)
    run = _Run(settings, registry, progress, say)
    registry.create()  # first: a folder with a lock alone would pass for another's
    with processes.FolderLock() as lock:
        lock.acquire(registry.root, "updated", "--out")
        if (registry.begin(), registry.current) != (run.folder, run.base):
            run = _Run(settings, registry, progress, say)  # another process has ended one since
        try:
            yield run
        finally:
            registry.discard()


class _NothingNew(Exception):
    """The documents contain no new text."""


class _Run:
    def __init__(self, settings: Update, registry: Registry, progress: Progress, say):
        self.registry, self._progress, self._say = registry, progress, say
        self.folder = registry.begin()
        self.base, self.learned = registry.current, registry.learned()
        self.settings = self._with_since(settings)
        self.model = Path(registry.current_model)
        self.config, self.vocabulary = require_model(self.model)
        self.masked = self.config.has_encoder  # trained on masked spans
        training.require_exportable(settings.method, self.masked, settings.adapter)
        training.check_bindings(
            settings.method, self.config, settings.bindings, settings.batch_size
        )
        if settings.decisions is not None:
            review_page.read_decisions(settings.decisions)  # on which items is known later
        positions = getattr(self.config, "max_positions", None)
        if positions and (settings.length or 0) > positions:
            raise UserError(
                f"--length {settings.length} is more than the {positions} positions of the model."
            )
        self.facts = facts_file.read(settings.facts) if settings.facts else []
        self.gate = scores.parse(settings.ship_if)
        self.tasks = self._tasks() if settings.harness else None
        self._seconds: dict[str, float] = {}

    def _with_since(self, settings: Update) -> Update:
        """The settings; without --since that of updates after the last one that is learned."""
        learned = self.learned[-1].name if self.learned else ""
        later = (f for f in self.registry.updates() if f.name > learned)
        given = [s for f in later if (s := records.read(f, "update.json").get("since"))]
        if settings.since or not given:
            return settings
        return dataclasses.replace(settings, since=given[0])

    def _tasks(self) -> Callable[[Any, Any], Any]:
        """Runs the tasks of lm-evaluation-harness on a model and its parameters."""
        if self.masked:
            raise UserError("--harness is for decoder-only models.")
        with if_missing("--harness needs the package lm_eval; pip install 'ckl-jax[harness]'."):
            from ckl_jax.updates import harness
        place, limit = self.settings.harness_tasks, self.settings.harness_limit
        harness.check(self.settings.harness, place)
        return functools.partial(
            harness.run_tasks, tasks=self.settings.harness, include_path=place, limit=limit
        )

    def run(self) -> int:
        if self.registry.is_shipping(self.folder):
            condition = records.read(self.folder, "verdict.json")["condition"]
            if condition != self.settings.ship_if:
                raise UserError(
                    f"{self.folder} was stopped after its verdict by the condition {condition!r}; "
                    "give this --ship-if to end it, and another one with the next update."
                )
            self._say(
                f"{self.folder} was stopped after its verdict; this command ends it and reads no "
                "new text."
            )
            return self._ship()
        if not self._begin():
            return gate.EXIT_CODES[gate.TOO_FEW]
        self._decide()
        # This process asks the models that another one trains meanwhile: neither may take three
        # quarters of a GPU's memory beforehand, as JAX does by default.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        self._step("before", self.folder / "before.json", lambda: self._ask(self.model, "before"))
        self._step("training", self.folder / "train" / "summary.json", self._train)
        self._step("export", self.folder / "model" / "config.json", self._export)
        after = self.folder / "model"
        self._step("after", self.folder / "after.json", lambda: self._ask(after, "after"))
        self._judge()
        return self._ship()

    def _begin(self) -> bool:
        """Reads the text and makes the items; False if nothing is new."""
        self._claim()
        try:
            self._step("documents", self.folder / "sentences.npy", self.read)
        except _NothingNew as e:
            shutil.rmtree(self.folder)
            self._say(str(e))
            return False
        self._step("items", self.folder / "overlap.json", self.make_items)
        return True

    def review(self) -> int:
        if not self._begin():
            return gate.EXIT_CODES[gate.TOO_FEW]
        if (self.folder / "before.json").exists():
            raise UserError(f"{self.folder} is past its review: the model has been evaluated.")
        page = self.folder / "review.html"
        item_review.write_review(records.read_items(self.folder), page, self.settings.command)
        self._say(f"{page}\nExport your decisions there, and add --decisions FILE to go on.")
        return 0

    def _decide(self) -> None:
        """Drops the items that a review dropped, once."""
        decided = self.folder / "decisions.json"
        if self.settings.decisions is None:
            return
        if decided.exists():
            if not filecmp.cmp(decided, self.settings.decisions, shallow=False):
                raise UserError(f"{decided} was used already; give that file with --decisions.")
            return
        if (self.folder / "before.json").exists():
            raise UserError(f"{self.folder} is past its review: the model has been evaluated.")
        before = records.read_items(self.folder)
        left = item_review.apply(before, Path(self.settings.decisions))
        overlap = records.read(self.folder, "overlap.json") | self._overlap(left)
        files.write_json(self.folder / "overlap.json", overlap)
        files.write_jsonl(self.folder / "items.jsonl", map(dataclasses.asdict, left))
        shutil.copyfile(self.settings.decisions, decided)
        self._say(f"{len(before) - len(left)} of {len(before)} items are dropped by the review.")

    def _step(self, name: str, made: Path, do: Callable[[], None]) -> None:
        if not made.exists():
            began = time.monotonic()
            do()
            self._seconds[name] = time.monotonic() - began

    def _record(self) -> dict[str, Any]:
        """The settings on which the result of an update depends, beside its text."""
        record = dataclasses.asdict(self.settings)
        for name in ("documents", "facts", "decisions"):
            record[name] = record[name] and os.path.abspath(record[name])
        record |= {name: list(record[name]) for name in ("harness", "bindings")}
        questions = hash64(*map(repr, self.facts))
        return record | {"questions": questions, "base": self.base, "ckl_jax": __version__}

    def _claim(self) -> None:
        wanted = self._record()
        path = self.folder / "update.json"
        # Until the documents are read, nothing has come of the settings.
        if (self.folder / "sentences.npy").exists():
            begun = files.read_json_object(path)
            other = {name for name, value in wanted.items() if begun.get(name) != value}
            names = (n for file, of in _FIXED.items() if (self.folder / file).exists() for n in of)
            if fixed := next((name for name in names if name in other), None):
                option = as_option(fixed, begun.get(fixed))
                without = f"without {flag(fixed)}; leave that out"
                said = f"with {option}; give that again" if option else without
                said = "with other --facts; restore that file" if fixed == "questions" else said
                raise UserError(f"{self.folder} was begun {said} to go on, or remove it.")
            if other & {*_TRAINING}:  # a training of other settings begins anew
                for name in ("rows", "train"):
                    shutil.rmtree(self.folder / name, ignore_errors=True)
            self._say(f"Going on with {self.folder}.")
        with files.os_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        wanted["date"] = datetime.date.today().isoformat()
        files.write_json(path, wanted)

    # --- documents

    def read(self) -> None:
        if self.settings.unreachable:
            self._say(f"{self.settings.unreachable} The update would end without a verdict.")
        if self.base is None and self.registry.updates():
            self._say(f"No update is current: this one begins with {self.model}, as the first did.")
        last = self.learned[-1] if self.learned else None
        known = new_text.Sentences(last and last / "sentences.npy")
        held_out = new_text.Sentences(last and last / "held_out.npy")
        counts, today = new_text.Counts(), datetime.date.today().isoformat()
        place, undated = self.settings.documents, collections.Counter()

        def read() -> Iterator[Document]:
            undated.clear()
            texts = read_place(place, self.settings.fields, latest=today, undated=undated)
            for i, document in enumerate(texts):
                if i % 1000 == 0:
                    self._progress(i, 0, "documents read")
                yield document

        parts = self.folder / "parts"
        shutil.rmtree(parts, ignore_errors=True)  # of a reading that was killed
        ordered = new_text.by_date(read, parts)
        since = self.settings.since
        documents = new_text.select(ordered, known, since, counts, held_out, self._holds_out)
        new_text.write_documents(documents, self.folder / "all.jsonl", self.folder / "old.jsonl")
        shutil.rmtree(parts, ignore_errors=True)
        files.write_json(self.folder / "documents.json", dataclasses.asdict(counts))
        if counts.words < _MIN_WORDS:
            why = (
                f"{labels.count(counts.documents, 'document')} read: {counts.empty} without words, "
                f"{counts.known} without a sentence that is new, {counts.older} from before --since"
            )
            raise _NothingNew(
                f"Nothing to learn in {place}: {counts.words} new words (between blanks) of "
                f"{_MIN_WORDS} at least ({why}); the model stays as it is."
            )
        if undated:
            self._say(
                f"{undated.total():,} documents have no date: the day on which their file was "
                "written counts for them."
            )
        self._say(
            f"{counts.kept:,} documents with {counts.words:,} new words, {counts.first_date} to "
            f"{counts.last_date}; {counts.known:,} had nothing new, {counts.empty:,} no words, "
            f"{counts.older:,} are older{self.settings.since and f' than {self.settings.since}'}."
        )
        self._refuse_again(known)
        has_older = counts.older or self.learned
        training.require_earlier_text(self.settings.method, self.masked, has_older)
        held_out.save(self.folder / "held_out.npy")
        known.save(self.folder / "sentences.npy")

    def _refuse_again(self, known: new_text.Sentences) -> None:
        """Refuses an update that would end as an earlier one did, which is not in use."""
        mine = self._record()
        compared = mine.keys() - set(_ASIDE)
        for folder in self.registry.updates():
            begun = files.read_json_object(folder / "update.json")
            if all(begun.get(k) == mine[k] for k in compared) and known.equals(
                folder / "sentences.npy"
            ):
                verdict = records.read(folder, "verdict.json")["verdict"]
                raise _NothingNew(
                    f"Nothing to learn in {self.settings.documents} but what {folder} was trained "
                    f"on with these settings (its verdict: {verdict}): change them, such as "
                    f"--method or --seed, or write {folder.name} into {self.registry.root}/current "
                    "to use it all the same; the model stays as it is."
                )

    def _older(self) -> Iterator[Document]:
        """The earlier text that may be replayed."""
        for folder in self.learned:
            yield from self._older_parts(folder, held_out=False)
            if (folder / "new.jsonl").exists():
                yield from new_text.read(folder / "new.jsonl")
        yield from self._older_parts(self.folder, held_out=False)

    def _older_parts(self, folder: Path, held_out: bool) -> Iterator[Document]:
        """The held-out documents from before an update's --since, or all others."""
        if (folder / "old.jsonl").exists():
            count = records.read(folder, "documents.json")["older"]
            for document in new_text.read(folder / "old.jsonl"):
                if (count >= _FEW and self._holds_out(document, is_old=True)) == held_out:
                    yield document

    def _parts(self, held_out: bool) -> Iterator[Document]:
        """The new parts of the held-out documents, or of all others."""
        count = records.read(self.folder, "documents.json")["kept"]
        for document in new_text.read(self.folder / "all.jsonl"):
            if (count >= _FEW and self._holds_out(document, is_old=False)) == held_out:
                yield document

    def _holds_out(self, document: Document, is_old: bool) -> bool:
        """Whether a document is held out where there are enough."""
        seed = () if is_old else (self.settings.seed,)  # old ones are the same in all updates
        return hash64(*seed, document.id, document.date) % _HELD_OUT == 0

    # --- items

    def make_items(self) -> None:
        """Makes the items, and the training text without them."""
        limit, seed = self.settings.max_items, self.settings.seed
        counts = records.read(self.folder, "documents.json")
        until = max(counts["last_date"], self._last_day())  # late text reverses no history
        positions = items.Positions(self.config, self.vocabulary)
        fits, since = positions.hold_item, self._since(counts)
        own = facts_file.items(self.facts, since, until, limit, seed, fits)
        if self.facts:
            used = f"{len(own):,} of {len(self.facts):,} questions of --facts are used"
            self._say(
                f"{used}; the others are later, too long, above --max-items, or without wrong "
                "answers."
            )
        room = {tag: limit - sum(item.tag == tag for item in own) for tag in items.TAGS}
        earlier = [item for folder in self.learned for item in records.read_items(folder)]
        # Of one's own facts the file of this update says what is right now.
        again = [item for item in earlier if item.about or not self.facts]
        asked = [item.text for item in (*own, *earlier)]
        parts = self._parts(held_out=False), self._older()
        write_documents(self.folder / "held_out.jsonl", self._parts(held_out=True))
        unread = new_text.read(self.folder / "held_out.jsonl"), self._older_held_out()
        made, held = items.make(*parts, room, seed, again, asked, unread, fits)
        made = [*own, *made]

        def write(name: str, documents: Iterable[Document]) -> None:
            kept = (dataclasses.replace(d, text=items.without(d.text, held)) for d in documents)
            write_documents(self.folder / name, (d for d in kept if d.text))

        write("new.jsonl", self._parts(held_out=False))
        write("replay.jsonl", spread(self._older(), training.REPLAYED))
        files.write_jsonl(self.folder / "items.jsonl", map(dataclasses.asdict, made))
        overlap = self._overlap(made) | positions.left_out
        counts = {tag: sum(i.tag == tag for i in made) for tag in items.TAGS}
        tags = ", ".join(f"{n} {tag}" for tag, n in counts.items())
        self._say(f"Questions: {tags}. {records.described(overlap)}")
        files.write_json(self.folder / "overlap.json", overlap)

    def _overlap(self, made: list[items.Item]) -> dict[str, Any]:
        trained = [self.folder / f"{name}.jsonl" for name in ("new", "replay")]
        before = [f for folder in self.learned if (f := folder / "new.jsonl").exists()]
        return records.overlap(made, trained, before)

    def _last_day(self) -> str:
        """Of all text that is learned."""
        read = (records.read(folder, "documents.json") for folder in self.learned)
        return max((counts["last_date"] for counts in read), default="")

    def _since(self, counts: Mapping[str, Any]) -> str:
        """The first day from which an answer counts as new."""
        if self.settings.since:
            return self.settings.since
        if not self.learned:
            return counts["first_date"]
        last = datetime.date.fromisoformat(self._last_day())
        return (last + datetime.timedelta(days=1)).isoformat()

    # --- models

    def _ask(self, model: Path, name: str) -> None:
        from ckl_jax.updates import evidence

        texts = {
            "new": evidence.pieces(new_text.read(self.folder / "held_out.jsonl"), self.masked),
            "old": evidence.pieces(self._older_held_out(), self.masked),
        }
        try:
            scorer = evidence.open_model(model)
        except UserError:
            if not self.registry.updates():  # nothing may come of a model that cannot be read
                shutil.rmtree(self.folder)
            raise
        known = self._known_answers() if name == "before" else {}
        probed = [i for i in records.read_items(self.folder) if i.id not in known]
        results = evidence.ask(scorer, probed, texts, self._progress, self.tasks)
        results["answers"] |= known
        files.write_json(self.folder / f"{name}.json", results)

    def _known_answers(self) -> dict[str, int]:
        """Answers of the current model that its own update asked for, and this one asks again."""
        if not self.learned or not (self.learned[-1] / "after.json").exists():
            return {}

        def asked(item: items.Item) -> tuple[str, int, tuple[str, ...]]:
            return item.text, item.start, item.candidates

        places = records.read(self.learned[-1], "after.json")["answers"]
        was = {asked(item): places.get(item.id) for item in records.read_items(self.learned[-1])}
        now = ((item.id, was.get(asked(item))) for item in records.read_items(self.folder))
        return {id: place for id, place in now if place is not None}

    def _older_held_out(self) -> Iterator[Document]:
        """Held-out text of earlier updates and from before --since, on which none has trained."""
        for folder in self.learned:
            if (folder / "held_out.jsonl").exists():
                yield from new_text.read(folder / "held_out.jsonl")
        for folder in (*self.learned, self.folder):
            yield from self._older_parts(folder, held_out=True)

    def plan(self) -> training.Plan:
        """What the training will be."""
        names = ("epochs", "batch_size", "length", "learning_rate")
        given = {n: v for n in names if (v := getattr(self.settings, n)) is not None}
        size = training.parameters(self.model)
        words = records.read(self.folder, "documents.json")["words"]
        tokens = training.count_tokens(self.folder / "new.jsonl", words, self.vocabulary)
        return training.plan(self.settings.method, self.config, size, tokens, given)

    def _train(self) -> None:
        from ckl_jax.convert.hugging_face import import_checkpoint

        plan = self.plan()
        imported = self.folder / "import"
        if not complete_steps(imported):
            shutil.rmtree(imported, ignore_errors=True)  # what a killed import left
            import_checkpoint(str(self.model), str(imported))
        arguments = (self.folder / "rows", self.vocabulary, plan.length, self.masked)
        rows = training.make_rows("new", self.folder / "new.jsonl", *arguments)
        if not rows:
            raise UserError(f"{self.folder}: no text is left to train on but held-out sentences.")
        replay = training.make_rows("old", self.folder / "replay.jsonl", *arguments)
        training.require_earlier_text(self.settings.method, self.masked, replay)
        plan = plan.with_rows(rows)
        self._say(
            f"Training by {self.settings.method}: rows of {plan.length} tokens, "
            f"{plan.batch_size} a step, {plan.epochs} passes, rate {plan.learning_rate:g}."
        )
        seed, bindings = self.settings.seed, tuple(self.settings.bindings)
        run_all([training.training(self.folder, plan, self.config, replay, seed, bindings)])

    def _export(self) -> None:
        from ckl_jax.convert.hugging_face import export_checkpoint
        from ckl_jax.convert.peft import export_peft

        trained, base = str(self.folder / "train"), str(self.model.absolute())
        like = str(self.model / "config.json")
        if self.settings.adapter:
            adapter = self.folder / "adapter"  # it names its base, and so is written in its place
            shutil.rmtree(adapter, ignore_errors=True)
            export_peft(trained, like, str(adapter), base=base)
        with files.atomic_folder(self.folder / "model") as made:
            export_checkpoint(trained, like, str(made))

    # --- verdict

    def _judge(self) -> None:
        from ckl_jax.updates import report

        rows = ledger.rows(self.folder)
        files.write_jsonl(self.folder / "ledger.jsonl", rows)
        verdict = self.gate.judge(ledger.scores(self.folder, rows))
        verdict["seconds"] = {k: round(v, 1) for k, v in self._seconds.items()}
        before, after = (
            records.read(self.folder, f"{n}.json").get("tasks", {}) for n in ("before", "after")
        )
        if shared := {name: [before[name], x] for name, x in after.items() if name in before}:
            verdict["tasks"] = shared
        report.write_report(self.folder, verdict, rows, self.registry)
        self.registry.finish(self.folder, verdict)

    def _ship(self) -> int:
        """What follows a verdict; an update that was stopped here does it again."""
        from ckl_jax.updates import report

        verdict = records.read(self.folder, "verdict.json")
        if verdict["verdict"] == gate.SHIP:
            self.registry.point_to(self.folder.name)
        report.write_history(self.registry)
        self.registry.clean(self.settings.keep)
        rows = records.read_rows(self.folder, "ledger.jsonl")
        states = collections.Counter(row["state"] for row in rows)
        self._say(f"Verdict: {verdict['verdict']} ({'; '.join(verdict['reasons'])}).")
        for task, (was, now) in verdict.get("tasks", {}).items():
            both = (f"{m} {was[m][0]:.3g} before, {now[m][0]:.3g} after" for m in now if m in was)
            self._say(f"{task}: {'; '.join(both)}.")
        summary = ", ".join(f"{states[s]} {s}" for s in report.STATES if states[s])
        self._say(f"Facts: {summary or 'none could be made into questions'}.")
        self._say(f"Report: {self.folder / 'report.html'}; model: {self.folder / 'model'}")
        hook = self.settings.on_ship if verdict["verdict"] == gate.SHIP else None
        failed = run_hook(hook, self.folder / "model") if hook else ""
        self.registry.shipped(self.folder)
        if failed:
            name = self.folder.name
            raise UserError(f"--on-ship {failed}; update {name} is current, so run it yourself.")
        return gate.EXIT_CODES[verdict["verdict"]]
