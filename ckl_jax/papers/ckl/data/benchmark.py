"""Builds InvariantLAMA, UpdatedLAMA, NewLAMA and NewLAMA-Easy from dated facts and dated text.

Documents are read as a stream, twice for NewLAMA-Easy; memory holds the items and what is found for
them. The folder that is written is whole or not there.
"""

import collections
import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import arg

from ckl_jax import checks
from ckl_jax.data import plugins
from ckl_jax.data.buckets import hash64
from ckl_jax.data.compressed import RECORD_BYTES
from ckl_jax.data.facts import templates
from ckl_jax.data.facts.ckl_files import ProbeItem
from ckl_jax.data.facts.ckl_writer import write_probe, write_rows
from ckl_jax.data.facts.dated_facts import read_dated_facts
from ckl_jax.data.facts.fact_probes import (
    INVARIANT_LAMA,
    NEW_LAMA,
    UPDATED_LAMA,
    Candidate,
    Counts,
    Period,
    candidates,
)
from ckl_jax.data.process_pool import Progress, no_progress
from ckl_jax.data.text.documents import Document, read_documents, spread
from ckl_jax.data.text.sentences import normalise, sentence_splitter
from ckl_jax.data.text.taggers import make_finder
from ckl_jax.errors import UserError, nearest
from ckl_jax.files import atomic_folder, read_json, write_json, write_jsonl
from ckl_jax.papers.ckl.data import benchmark_filters, recent_sentences, training_rows
from ckl_jax.papers.ckl.data.evidence import Found, Sentence, Watch
from ckl_jax.papers.ckl.data.recent_sentences import Recent, same
from ckl_jax.papers.ckl.data.training_rows import Parts

MADE_BY = "ckl data benchmark"
NEW_LAMA_EASY = "new_lama_easy"
LIGHT_TUNING = "trex_5000"
PROBES = (INVARIANT_LAMA, UPDATED_LAMA, NEW_LAMA, NEW_LAMA_EASY)
NOTE, REQUIRE = "note", "require"
PARTS = {name: f"{NEW_LAMA_EASY}_{name}" for name in ("small", "p1", "p2", "5000")}
_MAX_EXTRA = 5_000  # items outside of SMALL, to tune a decoder-only model on
_FITTED_ON = 20_000  # documents, of which the finder learns how words are written


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Settings of the benchmark builder.

    Attributes:
      evidence: Sentences that state a fact: note records those that are found, require drops facts
        without one.
      per_relation: Items of a relation, at most, drawn at random; 0 keeps all.
      light_tuning: Items of InvariantLAMA to set aside, to tune a GPT-2 on (5,000 in the paper).
      finder: Finder of entities: heuristic or spacy.
      language: Language of the sentences.
      stand_alone: Function that makes sentences stand alone, MODULE:FUNCTION: (sentences, contexts)
        -> sentences.
      paraphrase: Function that paraphrases, MODULE:FUNCTION: sentences -> sentences.
      ask: Function that writes questions for NewLAMA-Easy, MODULE:FUNCTION: (statements, answers)
        -> questions.
      templates: JSONL file (relation, cloze, question, kind) of templates beside the built-in ones.
      patterns: ParaRel's folder of templates, in place of the built-in ones.
      training_rows: Write the documents too, as CKL's corpora with salient spans masked.
      row_words: Words of a row, at most; 0 is a sentence a row (CKL: 350 tokens).
      row_spans: Spans masked in a row, at most, each once in some row; 0 masks all in one row.
      small: Fraction of the documents that are SMALL's, with its halves P1 and P2 (0.1 in the
        paper).
      half: First day of P2; by default the day that halves SMALL's documents of D1.
      seed: Random seed of the draws of items and of SMALL.
    """

    evidence: Literal[NOTE, REQUIRE] = NOTE
    per_relation: int = 0
    light_tuning: int = 0
    finder: str = "heuristic"
    language: str = "en"
    stand_alone: Annotated[str, arg(name="decontextualize")] = ""
    paraphrase: Annotated[str, arg(name="back-translate")] = ""
    ask: str = ""
    templates: str = ""
    patterns: str = ""
    training_rows: bool = False
    row_words: int = 250
    row_spans: int = 0
    small: float = 0.0
    half: str = ""
    seed: int = 0


Paths = Sequence[str | os.PathLike]


@dataclasses.dataclass(frozen=True)
class Evidence:
    """The evidence of a corpus for an item: `answer` is "new" (or the only one) or "old"."""

    side: str
    answer: str
    found: Found

    def rows(self, probe: str, key: str) -> Iterator[dict[str, Any]]:
        about = {"probe": probe, "id": key, "side": self.side, "answer": self.answer}
        for s in reversed(self.found.newest):
            place = {"document": s.document, "date": s.date, "title": s.title}
            yield {**about, **place, "sentence": s.text, "sentences": self.found.count}


def build(
    facts: Paths,
    corpora: Paths,
    dates: tuple[str, str],
    out: str | os.PathLike,
    options: Options = Options(),
    *,
    replace: bool = False,
    progress: Progress = no_progress,
    record_limit: int = RECORD_BYTES,
) -> dict[str, Any]:
    """Builds the probes for which there are facts and documents; returns the manifest.

    Args:
      facts: files and folders; see `dated_facts`.
      corpora: JSONL(.gz) of dated documents, each of D0, D1 or later by its date.
      dates: the last days of D0 and of D1.
      out: folder to write: CKL's files, evidence.jsonl, manifest.json.
      record_limit: bytes of a line of `corpora` at most.

    Raises:
      UserError: bad input (nothing is written then), or no item is left.
    """
    _need_documents(options, corpora)
    builder = _Builder(Period(*dates), options, progress, record_limit)
    check_out(out, MADE_BY, replace)
    counts: Counts = collections.Counter()
    # Facts decide what can be probed; documents decide what is kept and what is new.
    fact_candidates = candidates(read_dated_facts(facts), builder.period, builder.templates, counts)
    items, evidence = builder.items(fact_candidates, list(corpora), counts)
    if not items:
        raise UserError(_nothing(counts))
    manifest = {
        "made_by": MADE_BY,
        "dates": list(dates),
        "options": dataclasses.asdict(options),
        "facts": [os.fspath(p) for p in facts],
        "corpora": [os.fspath(p) for p in corpora],
        "finder": builder.finder.backend,
        "documents": builder.documents,
        "items": {probe: len(items[probe]) for probe in items},
        "with_evidence": _with_evidence(evidence),
        "by_relation": {
            probe: dict(collections.Counter(item.relation for item in some).most_common())
            for probe, some in items.items()
            if not probe.startswith(NEW_LAMA_EASY)
        },
        "half": builder.parts.half,
    }
    # A temporary folder that is renamed when whole: a reader never sees half a benchmark.
    with atomic_folder(out) as work:
        for probe in items:
            # Parts share the answers of the whole, and its ids.
            (write_rows if probe in PARTS.values() else write_probe)(probe, work, items[probe])
        if options.training_rows:
            manifest["rows"] = builder.write_corpora(list(corpora), work, counts)
        manifest["counts"] = dict(sorted(counts.items()))
        rows = (row for p, key, several in evidence for e in several for row in e.rows(p, key))
        write_jsonl(work / "evidence.jsonl", rows)
        write_json(work / "manifest.json", manifest)
    return manifest


def _nothing(counts: Counts) -> str:
    reasons = "; ".join(
        f"{n:,} {what}" for what, n in sorted(counts.items()) if n and not what.startswith("no wo")
    )
    names = sorted(what.partition(": ")[2] for what in counts if what.startswith("no template: "))
    more = f"; give --templates for relations such as {names[0]!r}" if names else ""
    return f"No item is left ({reasons}){more}."


def check_out(out: str | os.PathLike, made_by: str, replace: bool) -> None:
    """Checks that the folder can be written, before any work.

    Raises:
      UserError: it is a file; it holds something, and that may not be replaced, or is not `made_by`
        the same command.
    """
    out = Path(out)
    if out.exists() and not out.is_dir():
        raise UserError(f"{out} is a file; give a folder.")
    if not out.is_dir() or not any(out.iterdir()):
        return
    manifest = out / "manifest.json"
    held = None
    with contextlib.suppress(UserError):  # what is no JSON is of others
        held = read_json(manifest) if manifest.is_file() else None
    if not isinstance(held, dict) or held.get("made_by", "") != made_by:
        raise UserError(
            f"{out} is not empty and was not made by `{made_by}`; choose another --out."
        )
    if not replace:
        raise UserError(
            f"{out} holds what was made before; add --overwrite or choose another --out."
        )


def _with_evidence(evidence) -> dict[str, dict[str, int]]:
    """Probe -> "D0 old" and so on -> items."""
    counts: dict[str, collections.Counter[str]] = {}
    for probe, _, several in evidence:
        names = {f"{e.side} {e.answer}" for e in several if e.found.count}
        counts.setdefault(probe, collections.Counter()).update(names)
    return {probe: dict(sorted(c.items())) for probe, c in counts.items()}


Built = dict[str, list[ProbeItem]]
Proof = list[tuple[str, str, list[Evidence]]]  # probe, id, what was found


class _Builder:
    """Reads the corpora and makes items."""

    def __init__(self, period: Period, options: Options, progress: Progress, record_limit: int):
        _check(options)
        self.record_limit = record_limit
        self.period, self.options, self.progress = period, options, progress
        self.documents: dict[str, int] = {}
        self.parts = Parts(options.small, options.half, options.seed)
        self.split: Callable[[str], list[str]] = sentence_splitter(options.language)
        self.stand_alone = plugins.load(options.stand_alone, "--decontextualize")
        self.paraphrase = plugins.load(options.paraphrase, "--back-translate")
        self.ask = plugins.load(options.ask, "--ask")
        # Later sources replace the templates of a relation: built in, ParaRel's, the user's file.
        self.templates = templates.built_in()
        if options.patterns:
            self.templates = templates.with_patterns(self.templates, options.patterns)
        if options.templates:
            self.templates |= templates.read_templates(options.templates)

    def items(
        self, fact_candidates: list[Candidate], corpora: list, counts: Counts
    ) -> tuple[Built, Proof]:
        options = self.options
        # Labels are names as they stand: how a corpus writes "nice" says nothing of Nice.
        left = benchmark_filters.kept(
            fact_candidates, make_finder(options.finder), counts, options.per_relation, options.seed
        )
        # First reading of the documents: how the corpus writes words, and the days of D1.
        texts = spread(self._texts(corpora), _FITTED_ON)
        self.finder = make_finder(options.finder, texts)
        # 20,000 documents, which the rest of the build does not need.
        del texts
        # For each candidate the sentences with its answer, and of an update those with the old one.
        watch, pairs = Watch(), []
        for c in left:
            old = watch.add(c.subjects, c.old_answers) if c.old_answers else None
            pairs.append((watch.add(c.subjects, c.answers), old))
        # Second reading: evidence for the candidates, and sentences of D1 for NewLAMA-Easy.
        recent = self._watched(corpora, watch, counts)
        items: Built = {}
        proof: Proof = []
        for candidate, (new, old) in zip(left, pairs, strict=True):
            evidence = [Evidence(side, "new", watch.of(new, side)) for side in ("D0", "D1")]
            if old is not None:
                evidence += [Evidence(side, "old", watch.of(old, side)) for side in ("D0", "D1")]
            if options.evidence == REQUIRE and (why := _lacks(candidate.probe, evidence)):
                counts[f"{candidate.probe}: {why}"] += 1
                continue
            # Ids count from 0 within a probe, as in CKL's files.
            several = items.setdefault(candidate.probe, [])
            several.append(_item(candidate, str(len(several))))
            proof.append((candidate.probe, several[-1].id, evidence))
        # Third reading: what D0 says already is not new.
        if easy := self._easy(self._unknown(recent, corpora, counts), counts):
            items[NEW_LAMA_EASY] = [item for item, _ in easy]
            proof += [(NEW_LAMA_EASY, item.id, [support]) for item, support in easy]
            items |= self._parts(easy)
        self._set_aside(items, proof)
        order = (*PROBES, *PARTS.values(), LIGHT_TUNING)
        return {p: items[p] for p in order if items.get(p)}, proof

    def _parts(self, easy: list[tuple[ProbeItem, Evidence]]) -> Built:
        """NewLAMA-Easy of SMALL and of its halves, and what is not of SMALL."""
        if not self.parts.fraction:
            return {}
        built: Built = {probe: [] for probe in PARTS.values()}
        for item, evidence in easy:
            # An item of NewLAMA-Easy is made of exactly one sentence.
            (sentence,) = evidence.found.newest
            # What is not in SMALL serves to light-tune GPT-2 on (CKL, appendix G).
            names = self.parts.names(sentence.document, sentence.date) or ("5000",)
            for name in names:
                part = built[PARTS[name]]
                part.append(dataclasses.replace(item, probe=PARTS[name]))
        del built[PARTS["5000"]][_MAX_EXTRA:]
        return built

    def write_corpora(self, corpora: list, folder: Path, counts: Counts) -> dict[str, int]:
        """Writes the training rows of all documents; call it after `items`."""
        documents = self._read(corpora, "for training")
        rows = self.options.row_words, self.options.row_spans
        return training_rows.write_corpora(
            documents, folder, self.parts, self.finder, *rows, counts
        )

    def _set_aside(self, items: Built, proof: Proof) -> None:
        """Moves some items of InvariantLAMA, with their ids, to the file for light-tuning."""
        lasting, seed = items.get(INVARIANT_LAMA, []), self.options.seed
        if lasting and self.options.light_tuning >= len(lasting):
            raise UserError(
                f"--light-tuning {self.options.light_tuning} leaves nothing of the {len(lasting)} "
                "items of InvariantLAMA; give a smaller number."
            )
        # By hash, so that adding items changes few of the draws.
        drawn = sorted(lasting, key=lambda i: hash64("light", seed, i.input, i.answers))
        aside = {item.id for item in drawn[: self.options.light_tuning]}
        items[INVARIANT_LAMA] = [i for i in lasting if i.id not in aside]
        items[LIGHT_TUNING] = [
            dataclasses.replace(i, probe=LIGHT_TUNING) for i in lasting if i.id in aside
        ]
        # In place: the caller holds the list.
        proof[:] = [
            (LIGHT_TUNING if p == INVARIANT_LAMA and key in aside else p, key, evidence)
            for p, key, evidence in proof
        ]

    def _read(self, corpora: list, what: str) -> Iterator[tuple[str, Document]]:
        """(side, document) of all documents of D0 and D1."""
        done: collections.Counter[str] = collections.Counter({"D0": 0, "D1": 0, "later": 0})
        for path in corpora:
            for document in read_documents(path, self.record_limit):
                side = self.period.side(document.date)
                done[side or "later"] += 1
                if done.total() % 1000 == 0:
                    self.progress(done.total(), 0, f"documents read {what}")
                if side:
                    yield side, document
        self.documents = dict(done)

    def _texts(self, corpora: list) -> Iterator[str]:
        """All texts; where SMALL is halved is known when they have been read."""
        days: collections.Counter[str] = collections.Counter()
        for side, document in self._read(corpora, "to learn words"):
            days[document.date] += side == "D1" and self.parts.is_small(document.id)
            yield document.text
        if self.parts.fraction and not +days:
            raise UserError(
                f"--small {self.parts.fraction:g} draws none of the {self.documents['D1']:,} "
                "documents of D1; give a larger fraction, or documents dated between --dates."
            )
        # `+days` drops the dates with count 0.
        self.parts = self.parts.halved(+days)

    def _sentences(self, document: Document) -> list[str]:
        return [s for line in document.text.splitlines() for s in self.split(line)]

    def _watched(self, corpora: list, watch: Watch, counts: Counts) -> list[list[Recent]]:
        """Passes all documents to `watch`; returns the candidate sentences of each recent one."""
        recent = []
        for side, document in self._read(corpora, "for evidence"):
            sentences = self._sentences(document)
            watch.read(document, sentences, side)
            if side == "D1":
                # Sentences must be understood alone, unless a plug-in rewrites them to be.
                some = recent_sentences.recent_sentences(
                    document, sentences, self.finder, counts, self.stand_alone is None
                )
                recent.append(some)
        counts["documents of D1 without a sentence to ask"] += sum(not r for r in recent)
        return [r for r in recent if r]

    def _unknown(
        self, recent: list[list[Recent]], corpora: list, counts: Counts
    ) -> list[list[Recent]]:
        """Drops sentences that are in D0, and those whose entities one sentence of D0 mentions."""
        if not recent:
            return []
        # Whether there is any is enough.
        watch = Watch(max_sentences=1)
        # First entity and answer together, and all other entities too: the same fact in other
        # words.
        pairs = {r: watch.add(r.others[:1], (r.answer,), r.others[1:]) for s in recent for r in s}
        wanted, known = {same(r) for r in pairs}, set()
        for side, document in self._read(corpora, "for what is known"):
            if side == "D0":
                sentences = self._sentences(document)
                known |= wanted.intersection(map(normalise, sentences))
                watch.read(document, sentences, side)
        new = [
            [r for r in s if same(r) not in known and not watch.of(pairs[r], "D0").count]
            for s in recent
        ]
        counts["sentences that D0 knows"] += sum(map(len, recent)) - sum(map(len, new))
        return new

    def _easy(self, recent: list[list[Recent]], counts: Counts) -> list[tuple[ProbeItem, Evidence]]:
        chosen = list(recent_sentences.rewritten(recent, counts, self.stand_alone, self.paraphrase))
        # A statement with two answers has no right one, so that both go.
        by_statement: dict[str, dict[str, Recent]] = {}
        for r in chosen:
            by_statement.setdefault(r.statement, {})[r.answer] = r
        left = [
            r for several in by_statement.values() if len(several) == 1 for r in several.values()
        ]
        counts[f"{NEW_LAMA_EASY}: a repeat"] += len(chosen) - len(left)
        statements = [r.statement for r in left]
        # By the plug-in, or else by rule.
        given = self.ask(statements, [r.answer for r in left]) if self.ask else [""] * len(left)
        asked = [g or recent_sentences.question(s) for g, s in zip(given, statements, strict=True)]
        easy = []
        for i, (r, text, q) in enumerate(zip(left, statements, asked, strict=True)):
            of = {"answers": (r.answer,), "question": q, "meta": {"date": r.date}}
            item = ProbeItem(id=str(i), probe=NEW_LAMA_EASY, input=text, **of)
            sentence = Sentence(r.date, r.document, r.title, r.sentence)
            easy.append((item, Evidence("D1", "new", Found(1, [sentence]))))
        return easy


def _check(options: Options) -> None:
    for name in ("per_relation", "light_tuning", "row_words", "row_spans"):
        checks.require_int(0, **{f"--{name.replace('_', '-')}": getattr(options, name)})
    if not 0 <= options.small <= 1:
        raise UserError(f"--small is {options.small:g}; give a fraction of the documents, 0 to 1.")
    # Settings that would have no effect are refused, not ignored.
    default = Options()
    rows = {"--row-words": "row_words", "--row-spans": "row_spans"}
    for flag, name in rows.items():
        if not options.training_rows and getattr(options, name) != getattr(default, name):
            raise UserError(f"{flag} is of training rows; add --training-rows, or leave it out.")
    if options.half and not options.small:
        raise UserError("--half parts SMALL; add --small, a fraction of the documents.")
    if options.evidence not in (NOTE, REQUIRE):
        raise UserError(
            f"--evidence is {options.evidence!r}; it is {NOTE} or {REQUIRE}."
            + nearest(options.evidence, (NOTE, REQUIRE))
        )


def _need_documents(options: Options, corpora: Paths) -> None:
    needing = {
        "--evidence require": options.evidence == REQUIRE,
        "--small": options.small,
        "--training-rows": options.training_rows,
    }
    for name, is_set in needing.items():
        if is_set and not corpora:
            raise UserError(f"{name} needs --documents, the dated documents of D0 and D1.")


def _lacks(probe: str, evidence: Sequence[Evidence]) -> str:
    """The parts of the paper's definitions that the corpora do not support, or "".

    A fact that stays is in D0, an updated one in D0 as it was and in D1 as it is, a new one in D1
    and not in D0.
    """
    counts = {(e.side, e.answer): e.found.count for e in evidence}
    if probe == INVARIANT_LAMA:
        return "" if counts["D0", "new"] else "no sentence of D0 says it"
    if probe == UPDATED_LAMA and not counts["D0", "old"]:
        return "no sentence of D0 has the old answer"
    if probe == NEW_LAMA and counts["D0", "new"]:
        return "a sentence of D0 has the answer"
    return "" if counts["D1", "new"] else "no sentence of D1 has the answer"


def _item(candidate: Candidate, key: str) -> ProbeItem:
    # InvariantLAMA has no dates: its facts hold in D0 and in D1.
    meta = {} if candidate.probe == INVARIANT_LAMA else {"date": candidate.date}
    if candidate.note:
        meta["note"] = candidate.note
    return ProbeItem(
        id=key,
        probe=candidate.probe,
        input=candidate.statement,
        answers=candidate.answers,
        old_answers=candidate.old_answers,
        relation=candidate.relation,
        question=candidate.question,
        meta=meta,
    )
