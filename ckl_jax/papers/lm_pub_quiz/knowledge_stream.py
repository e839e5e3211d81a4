"""`ckl stream`: a BERT trained on a stream of experiences, and what it still knows after each.

LM-PUB-QUIZ's experiment (Ploner et al. 2024, section 3.3): continued masked language modelling on
one experience after another, and after each the facts known at the start, by ranking and by filling
a mask. Here an experience is a span of dates. Each training is a `t5x train` of
`lm_pub_quiz_bert.gin` in a process of its own.
"""

import dataclasses
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ckl_jax import files
from ckl_jax.checkpoints.restore import find_checkpoint
from ckl_jax.convert.gin_record import row_length
from ckl_jax.convert.hugging_face import model_gin
from ckl_jax.data.facts.relational import Dataset
from ckl_jax.data.tasks.cached import CachedTask
from ckl_jax.data.tasks.causal import document_text, prepare_rows
from ckl_jax.data.text.documents import Document, read_documents, write_documents
from ckl_jax.data.text.masked_vocabulary import MaskedVocabulary, open_vocabulary, train_word_pieces
from ckl_jax.errors import UserError
from ckl_jax.models.bert import BertConfig
from ckl_jax.papers.lm_pub_quiz.analysis import trajectories
from ckl_jax.papers.lm_pub_quiz.settings import Stream
from ckl_jax.train import studies
from ckl_jax.train.subprocess_runs import Training
from ckl_jax.world.ckl import open_world
from ckl_jax.world.facts import World
from ckl_jax.world.quiz import write_quiz
from ckl_jax.world.render import Dated, articles, pages

GIN = "lm_pub_quiz_bert.gin"
INITIAL = "initial"
_TINY = BertConfig(
    emb_dim=128, num_heads=4, head_dim=32, num_layers=3, mlp_dim=512, max_positions=64
)
_PIECES = 6000
_LENGTH = 24
_INSTANCES = 24  # facts of a relation, at most


def run_stream(stream: Stream) -> Path:
    """Runs the study, or resumes it; returns the path of the figure.

    Raises:
      UserError: bad settings or documents; or a training failed: its log's last lines are said.
    """
    # Before anything is written: macros that the study sets itself cannot be bound by the user.
    studies.refuse_own(stream.bindings, _macros(stream, INITIAL, None))
    _check(stream)
    with studies.open_study(stream, trajectories.RECORD, "stream") as study:
        study.step("Data")
        trainings = _trainings(stream, _prepare(stream))
        study.step("Training")
        study.run(trainings)
        study.step("Trajectories")
        folders = {t.name: t.folder for t in trainings}
        return study.done(
            trajectories.write_trajectories(folders, stream.root, Path(_dataset(stream)).name)
        )


def _check(stream: Stream) -> None:
    """Refuses what is not there before anything is written."""
    if stream.model:
        with files.os_errors(stream.documents, "read"), open(stream.documents, "rb"):
            pass
        # All raise a UserError if the path is wrong; their results are not needed yet.
        find_checkpoint(stream.model)
        Dataset.from_path(stream.dataset)
        _vocabulary(Path(stream.model))
    for training in _trainings(stream, Path(stream.model) if stream.model else None):
        studies.check_settings(*training.gin())


def _dataset(stream: Stream) -> str:
    return stream.dataset or str(stream.root / "quiz")


def _prepare(stream: Stream) -> Path:
    """Makes what is not there; returns the folder of the model's vocabulary and its model.gin."""
    if stream.model:
        _rows(stream, _split(stream, read_documents(stream.documents)), Path(stream.model))
        return Path(stream.model)
    world = open_world("simulated", stream.seed, stream.size)
    write_quiz(world, _dataset(stream), instances=_INSTANCES)
    old = list(_paragraphs(world, pages(world)))
    model = stream.root / "model"
    # Written last of this step, so its existence says that the vocabulary is complete as well.
    if not (model / "model.gin").exists():
        texts = [document_text(d) for d in old]
        vocabulary = train_word_pieces(texts, model, _PIECES)
        config = dataclasses.replace(_TINY, vocab_size=vocabulary.vocab_size)
        files.write_file(model / "model.gin", model_gin(config, model))
    news = list(articles(world))
    stated = {document.id: facts for document, facts in news}
    parts = {
        name: list(_paragraphs(world, ((d, stated[d.id]) for d in some)))
        for name, some in _split(stream, [document for document, _ in news]).items()
    }
    _rows(stream, {INITIAL: old, **parts}, model)
    return model


def _paragraphs(world: World, dated: Iterable[Dated]) -> Iterator[Document]:
    """Each paragraph of the simulated world's as a document: a fact, now and then two.

    A model so small learns a row with several of them by heart, and not what each one says. What a
    fact says of its subject is marked.
    """
    for document, facts in dated:
        answers = sorted({world.name(fact.object) for fact in facts}, key=len, reverse=True)
        answer = re.compile("|".join(rf"\b{re.escape(name)}\b" for name in answers) or "(?!)")
        for number, text in enumerate(document.text.split("\n")):
            marks = tuple(match.span() for match in answer.finditer(text))
            yield Document(f"{document.id}-{number}", document.date, "", text, marks=marks)


def _split(stream: Stream, documents: Any) -> dict[str, list[Document]]:
    """The experiences: equally many documents, in the order of their dates."""
    # The id decides among documents of one day, so the split does not depend on the file's order.
    ordered = sorted(documents, key=lambda d: (d.date, d.id))
    if len(ordered) < stream.experiences:
        raise UserError(
            f"{stream.documents or 'The stream'} has {len(ordered)} documents, fewer than "
            f"--experiences {stream.experiences}."
        )
    # Integer arithmetic: sizes differ by one at most, and all documents are used.
    cuts = [i * len(ordered) // stream.experiences for i in range(stream.experiences + 1)]
    return {
        name: ordered[a:b] for name, a, b in zip(stream.names, cuts[:-1], cuts[1:], strict=True)
    }


def _rows(stream: Stream, parts: dict[str, list[Document]], model: Path) -> None:
    sources = {}
    for name, documents in parts.items():
        sources[name] = stream.root / "documents" / f"{name}.jsonl"
        # `write_documents` writes atomically: a file that is there is complete.
        if not sources[name].exists():
            write_documents(sources[name], documents)
    rows, length = stream.root / "rows", _row_length(stream)
    prepare_rows(sources, rows, _vocabulary(model), length, marks=not stream.model)


def _row_length(stream: Stream) -> int:
    return row_length(stream.model) if stream.model else _LENGTH


def _vocabulary(model: Path) -> MaskedVocabulary:
    vocabulary = open_vocabulary(model)
    if not isinstance(vocabulary, MaskedVocabulary):
        raise UserError(f"{model} is not a BERT or RoBERTa; `ckl stream` trains masked models.")
    return vocabulary


def _trainings(stream: Stream, model: Path | None) -> list[Training]:
    """Initial, where it is made here, and the experiences, each from the one before.

    Args:
      model: the folder of model.gin; None before it is made.
    """
    # For the small model alone, which is trained from random parameters on short sentences; an
    # imported BERT keeps the gin file's values (the paper's).
    small = {
        "BATCH_SIZE": _batch_size(stream),
        "LEARNING_RATE": 1e-3,
        "DROPOUT_RATE": 0.0,
        "MASK_RATE": 0.3,
    }
    # What a fact says is nearly always hidden: by chance it would be in a tenth of its statements
    # while its subject is shown, and so small a model would have to read them ten times as often.
    fresh = {**small, "LEARNING_RATE": 2e-3, "MASK_RATE": 0.15, "CHANGED_SPAN_WEIGHT": 6.0}
    names = [*([] if stream.model else [INITIAL]), *stream.names]
    made: list[Training] = []
    for name in names:
        macros = {
            "TASK_FEATURE_LENGTHS": {"targets": _row_length(stream)},
            **({} if model else {"VOCABULARY": None}),  # which model.gin binds
            **({} if stream.model else fresh if name == INITIAL else small),
            **_macros(stream, name, made[-1].folder if made else stream.model),
        }
        # The scores before the stream: step 0 of the first experience for an imported model; a
        # model trained here has those of the end of its initial training.
        first = bool(stream.model) and not made
        bindings = (f"train.train.eval_first = {first}", *_warmup(name), *stream.bindings)
        gin_files = [GIN, *([str(model / "model.gin")] if model else [])]
        after = tuple(t.name for t in made[-1:])
        # `after`: each waits for the one whose checkpoint it starts from.
        folder = stream.root / name
        made.append(Training.of(name, folder, gin_files, macros, bindings, after=after))
    return made


def _batch_size(stream: Stream) -> int:
    """64, or the largest power of two that is no more than the rows of any experience.

    64 before there are rows.
    """
    folder = stream.root / "rows"
    counts = [CachedTask.rows_in(folder, name) for name in stream.names]
    fewest = min([64, *(max(count, 1) for count in counts if count is not None)])
    return 2 ** (fewest.bit_length() - 1)


def _macros(stream: Stream, name: str, base: Any) -> dict[str, Any]:
    """The gin macros of a training that the user does not set."""
    return {
        "CACHE_DIRS": (stream.root / "rows",),
        "RANDOM_SEED": stream.seed,
        "RANKING_DATASET": _dataset(stream),
        "FILLING_DATASET": _dataset(stream),
        "MIXTURE_OR_TASK_NAME": name,
        "HELD_OUT_TASKS": (name,),
        "EVAL_PERIOD": 10**9,  # at the end alone
        "INITIAL_CHECKPOINT_PATH": base,
        "EPOCHS": stream.initial_epochs if name == INITIAL else stream.epochs,
    }


def _warmup(name: str) -> tuple[str, ...]:
    """Only the training that begins with random parameters has one."""
    if name != INITIAL:
        return ()
    return ("schedules.warmup_linear_to_fraction.warmup_fraction = 0.1",)
