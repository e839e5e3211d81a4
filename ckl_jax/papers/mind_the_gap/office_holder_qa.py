"""`ckl ask`: evaluates models on questions of one time, with different training cut-offs.

Mind the Gap (Lazaridou et al. 2021, section 5): each model is tuned on questions of another year,
which teach it the form and not the answers, and then evaluated. Closed-book questions show how far
its knowledge is from their time; questions about a passage, whose answer can be copied, are the
contrast.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

from ckl_jax.data.facts.questions import Question, question_batch, question_rows, read_questions
from ckl_jax.data.process_pool import file_identity, open_folder
from ckl_jax.data.tasks.converters import encoder_decoder_batch, pad_rows
from ckl_jax.data.tasks.dated_task import WordEncoder
from ckl_jax.data.tasks.epochs import random_keys
from ckl_jax.errors import UserError
from ckl_jax.files import read_json_object, read_jsonl, write_json, write_jsonl
from ckl_jax.models.decoder_only import DecoderOnlyModel
from ckl_jax.models.encoder_decoder import EncoderDecoderModel
from ckl_jax.optim.clipping import clip_by_global_norm
from ckl_jax.papers.mind_the_gap.analysis import office_holder_qa as analysis
from ckl_jax.papers.mind_the_gap.settings import Settings
from ckl_jax.probes import metrics
from ckl_jax.probes.answering import EncoderDecoderGenerator, fetch
from ckl_jax.probes.continuing import DecoderOnlyGenerator
from ckl_jax.train.opening import Opened, identity, locate, open_model
from ckl_jax.train.state import TrainState
from ckl_jax.train.step import make_train_step

Rows = list[dict[str, Any]]


def ask(
    models: Mapping[str, str],
    questions: str,
    out: str,
    tune: str | None = None,
    settings: Settings = Settings(),  # noqa: B008 (a frozen record)
    trusted: Sequence[str] = (),
) -> Path:
    """Evaluates every model on the questions; writes answers, a table and a figure.

    Args:
      models: {name: MODEL_DIR, checkpoint, or Hugging Face folder}, in the order of the figure.
      questions: file of the questions, see `data.facts.questions`.
      out: folder: `NAME.jsonl` a model, `asked.json`, `asked.png`. What a model has said with
        the same settings is not evaluated again; its folder must hold the same model still.
      tune: file of questions to tune on; None tunes on none.
      trusted: modules of the user's own that the gin files of the runs may import.

    Returns:
      The path of asked.json.

    Raises:
      UserError: a file or a checkpoint is missing or does not fit, or a question is in both files.
    """
    asked_now, tuned_on = read_questions(questions), read_questions(tune) if tune else []
    # A question that is tuned on would be answered from the tuning. Of another passage it may be.
    if both := {q.prompt for q in asked_now} & {q.prompt for q in tuned_on}:
        raise UserError(f"{tune} and {questions} share questions, such as {min(both)!r}.")
    answers = {name: Path(out) / f"{name}.jsonl" for name in models}
    missing = {name: models[name] for name, path in answers.items() if not path.exists()}
    folders = {name: str(Path(place).resolve()) for name, place in models.items()}
    for place in missing.values():
        locate(place)  # before the first is evaluated
    wanted = {
        "questions": file_identity(questions),
        "tune": tune and file_identity(tune),
        **dataclasses.asdict(settings),
    }
    open_folder(out, wanted, dry_run=True)
    record = Path(out) / "models.json"
    held = read_json_object(record) if record.exists() else {}
    for name, place in models.items():
        opened = open_model(place, trusted=trusted)
        own = {"folder": folders[name], **identity(opened.model, opened.params)}
        if name not in missing:
            # A folder may hold another model than it did.
            if name in held and held[name] != own:
                raise UserError(
                    f"{answers[name]} has the answers of another model than {place} is now; give "
                    "the model another name, or choose another --out."
                )
            continue
        model_answers = answers_of(opened, asked_now, tuned_on, settings, name)
        open_folder(out, wanted)
        held[name] = own
        write_json(record, held)
        write_jsonl(answers[name], model_answers)
    rows = {name: list(read_jsonl(path)) for name, path in answers.items()}
    return analysis.write_answers(rows, Path(out))


def answers_of(
    opened: Opened,
    questions: Sequence[Question],
    tune: Sequence[Question],
    settings: Settings,
    name: str = "",
) -> Rows:
    """The answers of one model.

    Args:
      opened: the model; its parameters are donated if it is tuned.
      questions, tune, settings: see `ask`.
      name: for lines of progress.

    Returns:
      A row for each question: `id`, `date`, `question`, `answers`, `prediction`, `em`, `f1`,
      `loss` of the first answer in nats, `words`.
    """
    if not isinstance(opened.model, DecoderOnlyModel | EncoderDecoderModel):
        raise UserError(
            f"A {type(opened.model.config).__name__} writes no answers; rank dated facts by it "
            "instead: `ckl data dated-quiz`, `ckl probe bear`."
        )
    with opened.on_mesh():
        params = opened.params
        if tune and settings.epochs:
            params = _tuned(opened, tune, settings, name)
        return _rows(opened, params, questions, settings)


def _encoded(opened: Opened, questions: Sequence[Question], length: int):
    vocabulary = opened.model.output_vocabulary
    rows = question_rows(questions, WordEncoder(vocabulary), vocabulary.eos_id, length)
    # The context of the first token is an end, as where the model was trained.
    if isinstance(opened.model, DecoderOnlyModel):
        return [([vocabulary.eos_id, *prompt], answer) for prompt, answer in rows]
    return [([*prompt, vocabulary.eos_id], answer) for prompt, answer in rows]


def _widths(model: Any, rows: Sequence[tuple]) -> list[int]:
    """The width of all batches, so that one shape is compiled; of an encoder-decoder both."""
    if isinstance(model, DecoderOnlyModel):
        return [max(len(prompt) - 1 + len(answer) for prompt, answer in rows)]
    return [max(map(len, part)) for part in zip(*rows, strict=True)]


def _batch(
    model: Any, rows: Sequence[tuple], widths: Sequence[int], size: int
) -> dict[str, np.ndarray]:
    """A batch in which the answers count, filled up to `size` by rows without weights."""
    if isinstance(model, DecoderOnlyModel):
        bare = [(prompt[1:], answer) for prompt, answer in rows]
        batch = question_batch(bare, widths[0], model.output_vocabulary.eos_id)
    else:
        parts = zip(zip(*rows, strict=True), widths, strict=True)
        batch = encoder_decoder_batch(*(pad_rows(x, n) for x, n in parts), np.ones(len(rows), bool))
    return {k: np.pad(x, ((0, size - len(rows)), (0, 0))) for k, x in batch.items()}


def _losses(opened: Opened, params: Any, rows: Sequence[tuple], size: int) -> Iterator[float]:
    """The loss of each question's first answer with its end, in nats."""
    widths, score = _widths(opened.model, rows), jax.jit(opened.model.score_batch)
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        batch = opened.put_batch(_batch(opened.model, part, widths, size))
        yield from (-fetch(score(params, batch))[: len(part)]).tolist()


def _tuned(opened: Opened, questions: Sequence[Question], settings: Settings, name: str) -> Any:
    """All parameters after `epochs` passes of training on the loss of the answers only."""
    rows = _encoded(opened, questions, settings.length)
    widths = _widths(opened.model, rows)
    tx = optax.chain(clip_by_global_norm(settings.clip_norm), optax.adam(settings.learning_rate))
    step = jax.jit(make_train_step(opened.model.loss_fn, tx, dropout=False), donate_argnums=0)
    state, key = TrainState.create(opened.params, tx), jax.random.key(settings.seed)
    for epoch in range(settings.epochs):
        losses = []
        order = np.argsort(random_keys(len(rows), settings.seed, epoch), kind="stable")
        for start in range(0, len(rows), settings.batch_size):
            part = [rows[i] for i in order[start : start + settings.batch_size]]
            batch = _batch(opened.model, part, widths, settings.batch_size)
            state, step_metrics = step(state, {}, opened.put_batch(batch), key)
            losses.append(step_metrics["loss"])
        mean = float(np.mean(jax.device_get(losses)))
        print(f"   {name}  tuned, epoch {epoch + 1}/{settings.epochs}  loss {mean:.3f}", flush=True)
    return state.params


def _rows(opened: Opened, params: Any, questions: Sequence[Question], settings: Settings) -> Rows:
    rows = _encoded(opened, questions, settings.length)
    prompts, longest = [prompt for prompt, _ in rows], max(len(answer) for _, answer in rows)
    decoder_only = isinstance(opened.model, DecoderOnlyModel)
    make = DecoderOnlyGenerator if decoder_only else EncoderDecoderGenerator
    generator = make(opened.model, settings.batch_size, put_batch=opened.put_batch)
    said = generator.answers(params, prompts, max(map(len, prompts)), longest + 1, 1)
    losses = _losses(opened, params, rows, settings.batch_size)
    return [
        {
            "id": q.id,
            "date": q.date,
            "question": q.question,
            "answers": list(q.answers),
            "prediction": texts[0],
            "em": metrics.exact_match(texts[0], q.answers),
            "f1": metrics.f1(texts[0], q.answers),
            "loss": loss,
            "words": len(q.answers[0].split()) + 1,  # the end of the answer counts
        }
        for q, texts, loss in zip(questions, said, losses, strict=True)
    ]
