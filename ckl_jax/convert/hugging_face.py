"""`ckl import-hf` and `ckl export-hf`: Hugging Face folders in, and out again."""

import contextlib
import dataclasses
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ckl_jax import __version__, files
from ckl_jax.checkpoints import architectures
from ckl_jax.checkpoints.architecture import TOKENIZER_FILES, Config, gin_name
from ckl_jax.checkpoints.from_hf import check_rows, check_spare_rows, load_hf, read_config
from ckl_jax.checkpoints.hub import folder_of
from ckl_jax.checkpoints.peft import is_adapter
from ckl_jax.checkpoints.restore import ORIGIN, find_checkpoint, read_json_item
from ckl_jax.checkpoints.scan_layout import is_stacked
from ckl_jax.checkpoints.store import CheckpointStore
from ckl_jax.checkpoints.to_hf import save_hf
from ckl_jax.convert.gin_record import configured
from ckl_jax.data.text.vocabulary_copy import save_copy
from ckl_jax.errors import UserError
from ckl_jax.methods.lora import merge_lora
from ckl_jax.train.artifacts import count
from ckl_jax.train.setup import load_params
from ckl_jax.trees import paths
from ckl_jax.trees.paths import flatten

_MAX_NEW_ROWS = 1_000_000  # of an embedding: no vocabulary has more tokens

# Of a config.json; an mT5 is a T5 here. Not its dtype: read in bfloat16, most of a small update of
# what is written in float32 would be lost.
_TEMPLATES = "additional_chat_templates"  # a folder of those with a name
_KEPT = ("model_type", "architectures", "use_cache")


def import_checkpoint(
    folder: str, out: str, vocab_size: int | None = None, legacy_tokens: bool = False
) -> str:
    """Writes a Hugging Face model as `checkpoint_0` of `out`, with `model.gin` for it.

    Args:
      folder: has config.json and safetensors (or flax_model.msgpack); the vocabulary is copied.
      vocab_size: rows of the embedding, if more are needed than the file has: for a mesh that must
        divide them, or for new tokens. The new rows are random, as transformers makes them.
      legacy_tokens: add the five tokens that TemporalWiki's code added to GPT-2, and their rows.

    Returns:
      What was done, and how to use it.

    Raises:
      UserError: the folder lacks something, `out` already holds a checkpoint, or fewer rows are
        asked for than there are.
    """
    config, params = load_hf(folder)
    files_of = architectures.of_config(config).vocabulary.of(Path(folder))
    added = files_of.legacy_tokens if legacy_tokens else ()
    if legacy_tokens:
        if not added:
            raise UserError("--legacy-tokens are those of TemporalWiki's GPT-2; leave them out.")
        vocab_size = vocab_size or config.vocab_size + len(added)
    rows = config.vocab_size
    if vocab_size is not None:
        config, params = _grown(config, params, vocab_size)
    vocabulary = _vocabulary(Path(folder), config, added)
    check_spare_rows(vocabulary, rows)
    metadata = {"imported_from": Path(folder).name}
    if vocabulary:
        metadata["vocabulary_digest"] = vocabulary.digest
    with new_model_dir(out, params, metadata):
        path = keep_vocabulary(Path(folder), out, config, added) if vocabulary else None
        write_model_gin(out, config, path, added)
        files.write_file(Path(out) / ORIGIN, (Path(folder) / "config.json").read_bytes())
    return (
        f"{count(params):,} parameters in {out}/checkpoint_0. Use them with\n"
        f"  {restore_flags(out)}\n{_usage(out, config, vocabulary)}"
    )


def restore_flags(out: str) -> str:
    """What `t5x train` is given to begin with an imported model, for a shell."""
    values = {"gin_file": f"{out}/model.gin", "gin.INITIAL_CHECKPOINT_PATH": repr(out)}
    if re.fullmatch(r"[\w./-]+", out):
        return " ".join(f'--{k}="{v}"' if "'" in v else f"--{k}={v}" for k, v in values.items())
    return " ".join(shlex.quote(f"--{k}={v}") for k, v in values.items())


@contextlib.contextmanager
def new_model_dir(out: str, params: Any, metadata: Mapping[str, Any]) -> Iterator[None]:
    """Writes `params` as `checkpoint_0` of `out` after the files that the `with` block writes.

    Raises:
      UserError: `out` already holds a checkpoint.
    """
    with files.claimed_folder(out, "ckl import"), CheckpointStore(out) as store:
        store.require_empty()
        yield
        state = {"params": params, "step": np.zeros((), np.int32)}
        store.save(0, state, {"ckl_jax": __version__, **metadata}, copy=False)


def _grown(config: Config, params: dict[str, Any], rows: int) -> tuple[Config, dict[str, Any]]:
    """The model with `rows` rows in its embedding, the new ones normal with stddev 0.02."""
    table = params["token_embedder"]["embedding"]
    if rows < len(table):
        raise UserError(f"--vocab-size is {rows}, but the model has {len(table)} rows already.")
    if rows > len(table) + _MAX_NEW_ROWS:
        raise UserError(
            f"--vocab-size is {rows:,}, but the model has {len(table):,} rows: give at most "
            f"{_MAX_NEW_ROWS:,} more."
        )
    if not config.output_is_embedding:
        raise UserError("--vocab-size is for models whose output is the embedding and no more.")
    grown = {}
    for name in (n for n in params if n.endswith("token_embedder")):  # T5Gemma has two
        table = params[name]["embedding"]
        more = np.random.default_rng(0).normal(0.0, 0.02, (rows - len(table), table.shape[1]))
        grown[name] = {"embedding": np.concatenate([table, more.astype(table.dtype)])}
    return dataclasses.replace(config, vocab_size=rows), {**params, **grown}


def _vocabulary(folder: Path, config: Config, added: Sequence[str] = ()) -> Any:
    """The vocabulary in a folder; None if there is none."""
    vocabulary = architectures.of_config(config).vocabulary.open(folder, added)
    if vocabulary is not None:
        check_rows(vocabulary, config.vocab_size)
    return vocabulary


def copy(candidates: Iterable[Path], folder: Path) -> list[str]:
    """Copies those of the files that exist; returns their names."""
    existing = [file for file in candidates if os.path.lexists(file)]
    for file in existing:
        files.refuse_pipe(file)
        with files.os_errors(file, "read"):
            place = folder / _TEMPLATES if file.parent.name == _TEMPLATES else folder
            files.write_file(place / file.name, file.read_bytes())
    return [file.name for file in existing]


def _tokenizer_files(folder: Path, more: Sequence[str]) -> list[Path]:
    named = sorted((folder / _TEMPLATES).glob("*.jinja"))
    return [*(folder / name for name in (*TOKENIZER_FILES, *more)), *named]


def keep_vocabulary(folder: Path, out: str, config: Config, added: Sequence[str]) -> Path:
    """Copies the vocabulary of a folder into the MODEL_DIR `out`; returns its absolute path there.

    The record of the copy has that path too, as `model.gin` does: a relative one would also be
    right where the folder was moved to.
    """
    files_of, place = architectures.of_config(config).vocabulary.of(folder), Path(out).absolute()
    copy(_tokenizer_files(folder, files_of.more), place)
    save_copy(files_of.open(place, added), out)
    return files_of.path(place)


def added_tokens(folder: Path, config: Config, digest: str) -> Sequence[str] | None:
    """The tokens to add to the vocabulary in a folder for the one of a digest; None if it is none.

    Raises:
      UserError: the vocabulary has more ids than the model has rows.
    """
    files_of = architectures.of_config(config).vocabulary.of(folder)
    if (plain := _vocabulary(folder, config)) is None or plain.digest == digest:
        return None if plain is None else ()
    if legacy := files_of.legacy_tokens:
        with contextlib.suppress(UserError):  # more ids than the model has rows
            if _vocabulary(folder, config, legacy).digest == digest:
                return legacy
    return None


def _usage(out: str, config: Config, vocabulary: Any) -> str:
    architecture = architectures.of_config(config)
    files_of = architecture.vocabulary.of(Path(out))
    if vocabulary is None:
        return (
            f"There is no {files_of.described} beside the weights: bind VOCABULARY to the one of "
            "this model, and prepare data with it."
        )
    return architecture.usage.format(files_of.path(Path(out)))


def write_model_gin(
    out: str, config: Config, vocabulary: Path | None = None, added: Sequence[str] = ()
) -> None:
    """Writes `model.gin` of a folder; see `model_gin`."""
    files.write_file(Path(out) / "model.gin", model_gin(config, vocabulary, added))


def model_gin(config: Config, vocabulary: Path | None = None, added: Sequence[str] = ()) -> str:
    """The gin text that configures a model and its vocabulary; included after a training's gin
    file.

    Args:
      vocabulary: a file or folder, see `VocabularyFiles.path`; None leaves VOCABULARY to the run.
      added: tokens to add to the vocabulary.
    """
    architecture = architectures.of_config(config)
    fields = [f.name for f in dataclasses.fields(config) if f.name not in architecture.run_fields]
    lines = [
        f"# The configuration of the imported model; lay it over {architecture.run_gin}.",
        "from __gin__ import dynamic_registration",
        _import(architecture.config),
        *([f"include {architecture.gin_file!r}"] if architecture.includes_gin else []),
        f"{architecture.gin_name}:",
        *(f"    {field} = {getattr(config, field)!r}" for field in fields),
    ]
    if vocabulary:
        files_of = architecture.vocabulary.of(vocabulary.parent)
        reader = files_of.reader
        name = gin_name(reader)
        arguments = {"path": str(vocabulary.absolute()), **files_of.arguments}
        if added:
            arguments["added_tokens"] = tuple(added)
        lines.insert(3, _import(reader))
        lines += [f"VOCABULARY = @{name}()", f"{name}:"]
        lines += [f"    {argument} = {value!r}" for argument, value in arguments.items()]
    return "\n".join([*lines, ""])


def _import(cls: type) -> str:
    """The gin statement that imports the module of a class."""
    package, _, module = cls.__module__.rpartition(".")
    return f"from {package} import {module}" if package else f"import {module}"


def export_checkpoint(checkpoint: str, like: str | None, out: str) -> str:
    """Writes a checkpoint as a Hugging Face folder: config.json and model.safetensors.

    LoRA's adapters are folded into the kernels; `ckl export-peft` keeps them apart.

    Args:
      checkpoint: a MODEL_DIR or a `checkpoint_<step>`.
      like: a config.json of the same architecture, its folder, or the hub's name of that; None is
        the one kept beside the checkpoint. The tokenizer's files beside it are copied, or the
        vocabulary beside the checkpoint. Ids of tokens that the vocabulary does not say are kept.

    Returns:
      What was done.

    Raises:
      UserError: `out` holds something; the tokenizer is of another vocabulary, or the parameters do
        not fit the configuration, such as those of side networks.
    """
    files.refuse_existing(out, None)
    file, params = config_file(like, checkpoint), load_params(checkpoint)
    config = config_like(file, checkpoint, params)
    entries = architectures.of_config(config).require_hugging_face().entries(config)
    if sides := sorted(set(params) - {entry.path.split("/")[0] for entry in entries}):
        flat = flatten(paths.scan_to_loop(params) if config.scan_layers else params)
        # If the model itself lacks something it is another, which `save_hf` says.
        if all(entry.path in flat for entry in entries):
            raise UserError(
                f"{checkpoint} holds the side network {sides[0]!r}, for which Hugging Face's "
                "models have no place; only runs without one can be exported."
            )
    names = write_run(out, merged(params, checkpoint), config, file, checkpoint)
    taken = f" and {', '.join(names)}" if names else " and no tokenizer: none lies beside it"
    return f"Wrote {out}/config.json, the weights{taken}."


def write_run(out: str, params: Any, config: Config, like: Path, checkpoint: str) -> list[str]:
    """Writes parameters of a checkpoint as a Hugging Face folder; returns the tokenizer's files.

    Args:
      like: the config.json of the model that they came from.
    """
    tokenizer = tokenizer_files(checkpoint, like.parent, config)
    kept, said = _kept(like), _settings(tokenizer, config)
    for name, token in said.items():
        several = kept.get(name) if isinstance(kept.get(name), list) else []  # as Gemma 3's ends
        if token is None or token in several:
            said[name] = kept.get(name)
    save_hf(out, params, config, settings={**kept, **said})
    return copy(tokenizer, Path(out))


def config_file(like: str | None, checkpoint: str) -> Path:
    """The config.json that is meant by a file, a folder, a name of the hub, or None: the one kept
    beside the checkpoint.

    Raises:
      UserError: none is kept there, or the model has no such form.
    """
    folder = Path(str(find_checkpoint(checkpoint))).parent
    if recorded := configured(folder):
        recorded[0].require_hugging_face()
    if like is None:
        kept = folder / ORIGIN
        if not os.path.lexists(kept):
            raise UserError(
                f"{checkpoint} keeps no config.json of a Hugging Face model ({ORIGIN}); give "
                "--like a model of the same architecture and size."
            )
        return kept
    path = Path(like if like.endswith(".json") else folder_of(like, weights=False))
    return path / "config.json" if path.is_dir() else path


def config_like(file: Path, checkpoint: str, params: Any) -> Config:
    """The model of a config.json, with the layers and rows that `params` have.

    Raises:
      UserError: the checkpoint is of another family of models.
    """
    config, flat = read_config(file), flatten(params)
    if recorded := configured(Path(str(find_checkpoint(checkpoint))).parent):
        architecture, values = recorded
        theirs = getattr(config, "family", architectures.of_config(config).name)
        default = getattr(architecture.config, "family", architecture.name)
        if (ours := values.get("family", default)) != theirs:
            raise UserError(
                f"{file} is of a {theirs}, {checkpoint} of a {ours}; give --like the model that "
                "it came from."
            )
    config = dataclasses.replace(config, scan_layers=bool(is_stacked(flat)))
    if (table := flat.get("token_embedder/embedding")) is not None:  # it may have been grown
        config = dataclasses.replace(config, vocab_size=len(table))
    return config


def _kept(file: Path) -> dict[str, Any]:
    """What is no part of a configuration here and goes out as it came in."""
    return {
        name: value
        for name, value in files.read_json_object(file).items()
        if name in _KEPT or name.endswith("_token_id")
    }


def _settings(tokenizer: Sequence[Path], config: Config) -> dict[str, Any]:
    """The settings of config.json that depend on the tokenizer."""
    try:
        vocabulary = _vocabulary(tokenizer[0].parent, config) if tokenizer else None
    except UserError:  # no token for an end, or more ids than the model has rows
        return {}
    form = architectures.of_config(config).require_hugging_face()
    return form.vocabulary_settings(vocabulary) if vocabulary else {}


def tokenizer_files(checkpoint: str, beside: Path, config: Config) -> list[Path]:
    """The files of a tokenizer: those beside `config.json`, else the checkpoint's vocabulary."""
    folder = find_checkpoint(checkpoint)
    files_of = architectures.of_config(config).vocabulary.of(beside)
    trained = read_json_item(folder, "metadata").get("vocabulary_digest")
    if trained and (vocabulary := _vocabulary(beside, config)):
        if added_tokens(beside, config, trained) is None:
            raise UserError(
                f"{vocabulary.path} ({vocabulary.digest[:12]}) is not the vocabulary that "
                f"{checkpoint} was trained with ({trained[:12]}); give --like a folder without it, "
                "or with the right one."
            )
    place = beside if files_of.holds(beside) else Path(str(folder.parent))
    return [path for path in _tokenizer_files(place, files_of.more) if os.path.lexists(path)]


def adapter_scale(checkpoint: str, given: float | None) -> float:
    """The factor of the low-rank path that a checkpoint was trained with.

    Raises:
      UserError: the checkpoint does not say, and none is given.
    """
    if given is not None:
        return given
    dense = read_json_item(find_checkpoint(checkpoint), "metadata").get("dense") or {}
    if not isinstance(dense.get("scale"), (int, float)):
        raise UserError(f"{checkpoint} does not say the scale of its adapters; give --scale.")
    return dense["scale"]


def merged(params: Any, checkpoint: str, scale: float | None = None) -> Any:
    """The parameters with their adapters, if they have any, folded into the kernels."""
    if not any(map(is_adapter, flatten(params))):
        return params
    return merge_lora(params, adapter_scale(checkpoint, scale))
