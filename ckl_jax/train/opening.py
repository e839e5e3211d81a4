"""Opens the model of a folder with its parameters: of Hugging Face, of a run, or a checkpoint."""

import contextlib
import dataclasses
import hashlib
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import jax

from ckl_jax.checkpoints import architectures, from_hf
from ckl_jax.checkpoints.hub import folder_of
from ckl_jax.checkpoints.layout import tree_digest
from ckl_jax.checkpoints.restore import complete_steps, find_checkpoint, is_checkpoint, is_remote
from ckl_jax.config import gin_files, trust
from ckl_jax.data import plugins
from ckl_jax.data.text import vocabulary_copy
from ckl_jax.data.text.vocabularies import digest_of
from ckl_jax.errors import UserError
from ckl_jax.files import os_errors, write_file
from ckl_jax.methods.method import Method, vanilla
from ckl_jax.models.base import BaseTransformerModel
from ckl_jax.parallel.mesh import Partitioner
from ckl_jax.train import compile_cache, setup
from ckl_jax.train.configs import RestoreCheckpointConfig
from ckl_jax.train.restore import RestoredModel
from ckl_jax.trees import paths

JOB = "jobs/open_model.gin"
_HUGGING_FACE = "config.json"  # which a MODEL_DIR of this library has not


@dataclasses.dataclass(frozen=True)
class Opened:
    """A model with its parameters, on the devices.

    Attributes:
      model: the model.
      params: its parameters.
      put_batch: splits a dict of host arrays over the devices.
      on_mesh: makes the `with` block in which the model runs.
    """

    model: BaseTransformerModel
    params: Any
    put_batch: Callable[[dict], dict] = jax.device_put
    on_mesh: Callable[[], AbstractContextManager] = contextlib.nullcontext


def open_model(
    model: str, dtype: str | None = None, bindings: Sequence[str] = (), trusted: Sequence[str] = ()
) -> Opened:
    """Opens a model.

    Args:
      model: a Hugging Face folder or name, a MODEL_DIR, or a checkpoint in one.
      dtype: of activations; None is float32.
      bindings: gin bindings over those of the run.
      trusted: modules of the user's own that the gin file of the run may import.

    Raises:
      UserError: it is none of these, or the checkpoint does not fit the model.
    """
    folder = locate(model)
    if os.path.lexists(folder / _HUGGING_FACE):
        compile_cache.enable()  # a gin run enables it itself
        # float32 unless set otherwise: with bfloat16 scores of close options become equal.
        partitioner = Partitioner()

        def placing(model: BaseTransformerModel) -> from_hf.Place:
            shapes = paths.flatten(setup.param_shapes(model, vanilla(), partitioner).params)
            return lambda path, value: jax.device_put(value, shapes[path].sharding)

        overrides = {"dtype": dtype} if dtype else {}
        built, params = from_hf.open_model(folder, placing, **overrides)
        return Opened(built, params, partitioner.put_whole, partitioner.on_mesh)
    return _open_run(folder, dtype, bindings, trusted)


def identity(model: BaseTransformerModel, params: Any) -> dict[str, str]:
    """Digests by which saved results know a model, whatever it is called.

    Returns:
      "parameters": of these; "configuration": of it, and of how text is cut into tokens.
    """
    vocabularies = (getattr(model, "input_vocabulary", None), model.output_vocabulary)
    how = [_cutting(vocabulary) for vocabulary in vocabularies if vocabulary is not None]
    rest = hashlib.sha256(f"{model.config} {how}".encode())
    return {"parameters": tree_digest(params)[:16], "configuration": rest.hexdigest()[:16]}


def _cutting(vocabulary: Any) -> list[Any]:
    """What decides on the tokens of a text."""
    tokenizer = getattr(vocabulary, "tokenizer", None)  # a digest leaves out its rules
    names = ("bos_id", "eos_id", "pad_id", "mask_id", "extra_ids", "legacy_spacing")
    rest = [getattr(vocabulary, name, None) for name in names]
    # SeqIO's `tokenizer` is SentencePiece's.
    rules = tokenizer.to_str() if hasattr(tokenizer, "to_str") else digest_of(vocabulary)
    return [rules, *rest]


def locate(model: str) -> Path:
    """The folder of a model: see `open_model`.

    Raises:
      UserError: there is none, or it has no model.
    """
    folder = Path(folder_of(model))
    if os.path.lexists(folder / _HUGGING_FACE):
        return folder
    if not folder.exists() and not is_remote(model):
        raise UserError(
            f"There is no folder {model}; give that of a Hugging Face model, a MODEL_DIR or a "
            "checkpoint."
        )
    if folder.is_dir() and not is_checkpoint(folder) and not complete_steps(folder):
        raise UserError(
            f"{model} is not a model: it has neither Hugging Face's config.json nor a folder "
            "checkpoint_<step>; give one that has, or a checkpoint."
        )
    return folder


def _open_run(
    folder: Path, dtype: str | None, bindings: Sequence[str], trusted: Sequence[str]
) -> Opened:
    from ckl_jax.config import gin_config

    if trust.ALL in trusted:
        plugins.import_from_here()
    elif trusted:  # modules of the user's own may lie where the command runs
        plugins.find_here(trusted)
    # The newest checkpoint of a MODEL_DIR, or the checkpoint itself.
    checkpoint = Path(str(find_checkpoint(folder)))
    return gin_config.run_job(
        open_checkpoint,
        files=_gin_files(checkpoint.parent, trusted),
        # The user's bindings come last, and win.
        bindings=[
            f"CHECKPOINT_PATH = {str(checkpoint)!r}",
            f"ACTIVATION_DTYPE = {dtype or 'float32'!r}",
            *bindings,
        ],
        trusted=trusted,
    )


def copy_description(checkpoint: str | Path, out: str | Path) -> None:
    """Copies what a run is opened and exported by, all but its checkpoints, into another folder.

    Addresses such as gs://... are not opened by their folders, and nothing is copied.

    Raises:
      UserError: a file cannot be read or written.
    """
    if is_remote(checkpoint) or is_remote(out):
        return
    setup.keep_origin(out, str(checkpoint), None)
    run = Path(checkpoint).parent
    for name in ("config.gin", "model.gin", *vocabulary_copy.names(run)):
        if (run / name).is_file():
            with os_errors(run / name, "read"):
                write_file(Path(out) / name, (run / name).read_bytes())


def _bundled(name: str) -> str:
    """The whole path of a bundled gin file: other folders may have one of its name."""
    path = gin_files.BUNDLED / name
    return str(path) if path.is_file() else name


def _gin_files(run: Path, trusted: Sequence[str]) -> list[str]:
    """The gin files that describe the model of a run."""
    from ckl_jax.config import gin_config

    job = _bundled(JOB)
    if os.path.lexists(run / "config.gin"):
        return [str(run / "config.gin"), job]
    if os.path.lexists(run / "model.gin"):
        path = str(run / "model.gin")
        # Which model a model.gin describes is said by what it binds, e.g. GPT2Config; the
        # architecture's own gin file builds it.
        bound = gin_config.load([path], trusted=trusted).selectors()  # imports its modules
        model = _bundled(architectures.of_gin_names(bound, path).gin_file)
        # An imported model has no method, unless it came with an adapter.
        return [_bundled("methods/vanilla.gin"), model, path, job]
    raise UserError(
        f"{run} has neither the config.gin of a run nor the model.gin of an imported model; give "
        "such a folder, or one from Hugging Face with config.json."
    )


def open_checkpoint(
    *,
    model: BaseTransformerModel,
    restore_checkpoint_cfg: RestoreCheckpointConfig,
    method: Method | None = None,
    partitioner: Partitioner | None = None,
) -> Opened:
    """Opens one checkpoint of the base model `model`, to which `method` is added.

    Raises:
      UserError: the checkpoint does not fit.
    """
    restored = RestoredModel(model, method or vanilla(), partitioner, restore_checkpoint_cfg)
    with restored.partitioner.on_mesh():
        params = restored.load(restored.paths[-1])
    partitioner = restored.partitioner
    return Opened(restored.model, params, partitioner.put_whole, partitioner.on_mesh)
