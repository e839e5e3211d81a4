"""The training of an update: its default settings and its `t5x train` command."""

import dataclasses
import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax

from ckl_jax.checkpoints import architectures
from ckl_jax.checkpoints.safetensors_files import open_safetensors
from ckl_jax.config import gin_config
from ckl_jax.config.gin_files import BUNDLED, bundled_methods
from ckl_jax.data.tasks.cached import CachedTask
from ckl_jax.data.tasks.causal import prepare_rows
from ckl_jax.data.tasks.packing import pack, row_features
from ckl_jax.data.tasks.prepare import describe, encoded, make_task
from ckl_jax.data.text.documents import spread
from ckl_jax.data.text.spans import has_sentinel, masked_rows
from ckl_jax.data.text.taggers import HeuristicFinder
from ckl_jax.errors import UserError, refuse_unknown
from ckl_jax.methods.method import Method
from ckl_jax.train.studies import check_settings, gin_statements, refuse_own
from ckl_jax.train.subprocess_runs import Training
from ckl_jax.updates.new_text import read

REPLAYED = 20_000  # documents of older text, evenly spread
# Parameters up to which a rate holds, of updates of all parameters; added ones take more.
_RATES = ((5e7, 1e-3), (5e8, 2e-4), (2e9, 5e-5), (float("inf"), 2e-5))
_FEW_ADDED = 5.0
_BATCH = 1 << 12  # tokens
_SAMPLE = 200, 2000  # documents, and characters of each, that say how long a word is in tokens
_ROWS_OF_A_PASS = 20_000  # with as many, one pass is enough
# Rows of a passage of an encoder-decoder, each with another third of its names masked. Where all of
# them are, the subject of a sentence is hidden whenever its object is asked.
_PARTS = 3


@dataclasses.dataclass(frozen=True)
class Plan:
    """The training settings of an update."""

    gin_files: tuple[str, ...]  # of the job and the method
    length: int  # tokens of a row; of an encoder-decoder's inputs, whose targets have a quarter
    # batch_size, epochs, learning_rate: as the gin macros
    batch_size: int
    epochs: int
    learning_rate: float
    tokens: int  # of a pass, about

    def with_rows(self, rows: int) -> "Plan":
        """With a batch of no more rows than a text has, and the same on every device."""
        devices = jax.device_count()
        most = max(1, rows // devices) * devices
        return dataclasses.replace(self, batch_size=min(self.batch_size, most))


def gin_files(method: str, masked: bool) -> tuple[str, ...]:
    """The gin files of a method for an encoder-decoder, or for a decoder-only model.

    Raises:
      UserError: there is no such method.
    """
    job = "jobs/ckl_train.gin" if masked else "jobs/temporalwiki_train.gin"
    refuse_unknown(method, bundled_methods(), f"--method {method}: there are")
    of_decoder = f"methods/gpt2_{method}.gin"
    own = not masked and (BUNDLED / of_decoder).exists()
    return job, of_decoder if own else f"methods/{method}.gin"


def require_exportable(method: str, masked: bool, adapter: bool = False) -> None:
    """Raises `UserError` for a method whose parameters neither Hugging Face nor PEFT can hold."""
    made = _made(method, masked)
    if made.side:
        raise UserError(
            f"--method {method} trains a side network, for which Hugging Face's models have no "
            "place; choose another, such as lora."
        )
    if adapter and made.dense is None:
        raise UserError(f"--adapter: the method {method} adds no adapters; choose lora.")


def require_earlier_text(method: str, masked: bool, text: object) -> None:
    """Raises `UserError` if a method cannot do without text of before the update, and none is."""
    made = _made(method, masked)
    if not text and (made.mixture is not None or made.reads_earlier_data):
        raise UserError(
            f"--method {method} reviews text of before the update, and there is none: no update is "
            "in use. Give --since DATE, so that documents before it are the earlier text, or "
            "another method, such as vanilla."
        )


def _made(method: str, masked: bool) -> Method:
    import gin

    *_, name = gin_files(method, masked)
    # The update's own rate, which a schedule of the method's file needs.
    rate = ["LEARNING_RATE = None"]
    source = gin_config.read([name], overrides=rate)
    gin_config.bind(dataclasses.replace(source, bindings=[*source.bindings, *rate]))
    try:
        return gin.query_parameter("%METHOD").scoped_configurable_fn()
    finally:
        gin.clear_config()


def count_tokens(path: Path, words: int, vocabulary: Any) -> int:
    """About how many tokens so many words of a file of documents have, by a sample of them."""
    texts = [d.text[: _SAMPLE[1]] for d in spread(read(path), _SAMPLE[0])]
    tokens = sum(map(len, vocabulary.encode_many(texts)))
    return words * tokens // max(1, sum(len(text.split()) for text in texts))


def plan(method: str, model: Any, parameters: int, tokens: int, given: dict[str, Any]) -> Plan:
    """Derives defaults from the sizes of model and text; given settings take precedence.

    Args:
      method: name of a gin file.
      model: the configuration.
      parameters: of the model.
      tokens: of the text.
      given: values of `Plan` that are not None.
    """
    masked = model.has_encoder
    length = given.get("length") or min(512, getattr(model, "max_positions", 512))
    rate = next(rate for size, rate in _RATES if parameters <= size)
    if (made := _made(method, masked)).dense or made.side:  # it trains what it adds
        rate = min(1e-3, _FEW_ADDED * rate)
    tokens *= _PARTS if masked else 1
    rows = max(1, tokens // length)
    devices = jax.device_count()
    batch = -(-max(1, min(_BATCH // length, rows // 8)) // devices) * devices
    return Plan(
        gin_files(method, masked),
        length,
        given.get("batch_size") or batch,
        given.get("epochs") or (1 if rows > _ROWS_OF_A_PASS else 4),
        given.get("learning_rate") or rate,
        tokens,
    )


def make_rows(name: str, path: Path, out: Path, vocabulary: Any, length: int, masked: bool) -> int:
    """Makes the cached task of a file of documents; returns its rows, 0 without text."""
    if not any(d.text for d in read(path)):
        return 0
    if not masked:
        prepare_rows({name: path}, out, vocabulary, length, packed=True, replace=True)
        return len(CachedTask.open(out / name))
    lengths = _lengths(length, masked)
    meta = describe(name, path, vocabulary, lengths, packed=True)

    def rows() -> Iterator[dict[str, list[int]]]:
        finder = HeuristicFinder.fit(d.text for d in read(path))
        documents = (d for d in read(path) if not has_sentinel(d.text))
        examples = masked_rows(documents, finder, length // 2, parts=_PARTS)
        yield from encoded(((r["input"], r["output"]) for r in examples), vocabulary, lengths)

    features = row_features(tuple(lengths), packed=True)
    make_task(out / name, meta, pack(rows(), lengths), vocabulary, features=features, replace=True)
    return len(CachedTask.open(out / name))


def _lengths(length: int, masked: bool) -> dict[str, int]:
    """The tokens of a row by feature: what is masked takes less than a quarter of an input's."""
    return {"inputs": length, "targets": max(1, length // 4)} if masked else {"targets": length}


def training(
    folder: Path, plan: Plan, model: Any, replay: bool, seed: int, bindings: tuple[str, ...]
) -> Training:
    """The `t5x train` of an update in `folder`, which contains `import` and `rows`."""
    macros = _macros(folder, plan, model.has_encoder, replay, seed)
    gin = [*plan.gin_files, str(folder / "import" / "model.gin")]
    architecture = architectures.of_config(model)
    if not architecture.includes_gin:
        gin.insert(-1, architecture.gin_file)
    return Training.of("update", folder / "train", gin, macros, bindings)


def check_bindings(
    method: str, model: Any, bindings: Sequence[str], batch_size: int | None = None
) -> None:
    """Raises `UserError` for bindings that the training refuses or the command sets itself."""
    masked = model.has_encoder
    gin = gin_files(method, masked)
    rows = batch_size or jax.device_count()
    macros = _macros(Path(), Plan(gin, 2, rows, 1, 1.0, 0), masked, True, 0)
    refuse_own(bindings, macros)
    if not batch_size and any(b.split("=")[0].strip() == "NUM_MICROBATCHES" for b in bindings):
        raise UserError(
            "NUM_MICROBATCHES must divide the batch, whose size the text decides by default; give "
            "--batch-size too."
        )
    # model.gin binds the vocabulary; the folder is of no update yet.
    macros |= {"VOCABULARY": None, "MODEL_DIR": "train"}
    statements = gin_statements(macros, bindings)
    check_settings([*gin, architectures.of_config(model).gin_file], statements)


def _macros(folder: Path, plan: Plan, masked: bool, replay: bool, seed: int) -> dict[str, Any]:
    macros = {
        "INITIAL_CHECKPOINT_PATH": folder / "import",
        "CACHE_DIRS": (folder / "rows",),
        "MIXTURE_OR_TASK_NAME": "new",
        "TASK_FEATURE_LENGTHS": _lengths(plan.length, masked),
        "BATCH_SIZE": plan.batch_size,
        "EPOCHS": plan.epochs,
        "LEARNING_RATE": plan.learning_rate,
        "RANDOM_SEED": seed,
    }
    if replay:
        macros["REPLAY_TASK_NAME"] = "old"
    if masked:
        macros |= {"PROBES": None, "PROBE_DIR": "."}
    return macros


def parameters(folder: Path) -> int:
    """The number of parameters in a folder's safetensors, read from their headers."""
    total = 0
    for path in folder.glob("*.safetensors"):
        with open_safetensors(path) as f:
            names = f.keys()  # it is no mapping
            total += sum(math.prod(f.get_slice(name).get_shape()) for name in names)
    return total


def speed() -> float:
    """Half of this device's measured FLOP/s in a matrix product."""
    size = 2048
    product = jax.jit(jax.numpy.matmul)
    x = jax.numpy.ones((size, size), jax.numpy.float32)
    product(x, x).block_until_ready()
    began = time.perf_counter()
    for _ in range(4):
        x = product(x, x)
    x.block_until_ready()
    return 0.5 * 4 * 2 * size**3 / (time.perf_counter() - began)
