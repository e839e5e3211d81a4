"""The folder of a model by its name on Hugging Face's hub: its cache first, then the network."""

import re
from pathlib import Path

from ckl_jax.checkpoints.from_hf import FLAX, INDEX, SINGLE
from ckl_jax.errors import UserError
from ckl_jax.files import read_json_object

# What a model needs; code, pickles and other formats of weights stay there.
_WEIGHTS = "*.safetensors"
_FILES = ("*.json", _WEIGHTS, "*.model", "vocab.txt", "merges.txt", "vocab.bpe")
_VOCABULARIES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "spiece.model",
    "vocab.txt",
    "vocab.json",
)
_TOKENIZER = "a tokenizer"
# Models that had names without an owner.
_OWNERLESS = re.compile(r"(distil|xlm-)?(gpt2|bert|roberta|t5)(-[\w-]+)?")
_NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")


def folder_of(model: str, weights: bool = True) -> str:
    """The folder of a model: `model` itself, or where the hub's model of that name lies.

    Args:
      model: a folder, which comes first, or a name such as "Qwen/Qwen3-0.6B".
      weights: whether they are needed; if not, none are fetched.

    Raises:
      UserError: there is neither, the hub cannot be reached, or it asks for a token.
    """
    if not _is_name(model):
        return model
    try:
        from huggingface_hub import constants
    except ImportError:
        return model
    patterns = [p for p in _FILES if weights or p != _WEIGHTS]
    cached = _cached(model, patterns)
    # Other names are more likely of a folder that was mistyped, and the network takes its time.
    if cached is None and "/" not in model and not _OWNERLESS.fullmatch(model):
        return model
    lacking = "the model" if cached is None else _lacking(Path(cached), weights)
    if not lacking or (lacking == _TOKENIZER and constants.HF_HUB_OFFLINE):  # some have none
        return cached
    fetch = f"`hf download {model}` where there is a network fetches it"
    missing = f"There is no folder {model}, and no model of that name in {constants.HF_HUB_CACHE}"
    if cached is not None:
        missing = (
            f"There is no folder {model}, and of the model of that name {cached} lacks {lacking}"
        )
    if constants.HF_HUB_OFFLINE:
        raise UserError(f"{missing}; HF_HUB_OFFLINE is set. {fetch}.")
    try:
        found = _fetched(model, patterns, missing, fetch)
    except UserError:
        if lacking == _TOKENIZER:
            return cached
        raise
    # Where the hub cannot be reached, what is in the cache comes back as it is.
    if cached is not None and _lacking(Path(found), weights) not in ("", _TOKENIZER):
        raise UserError(
            f"{missing}, and the hub gave no more: it has none, or cannot be reached. {fetch}."
        )
    return found


def _is_name(model: str) -> bool:
    parent = Path(model).parent
    # "runs/lora" beside a folder `runs` is a folder that is missing, not a name.
    is_local = Path(model).exists() or (parent != Path(".") and parent.exists())
    return not is_local and _NAME.fullmatch(model) is not None


def _cached(model: str, patterns: list[str]) -> str | None:
    """The snapshot of a model in the hub's cache, which may lack files; None if there is none."""
    from huggingface_hub import errors, snapshot_download

    try:
        return snapshot_download(model, allow_patterns=patterns, local_files_only=True)
    except (errors.LocalEntryNotFoundError, errors.HFValidationError):
        return None


def _fetched(model: str, patterns: list[str], missing: str, fetch: str) -> str:
    """The folder of a model after asking the network for it; raises `UserError` if none comes."""
    from huggingface_hub import errors, snapshot_download

    try:
        return snapshot_download(model, allow_patterns=patterns)
    except errors.GatedRepoError as e:
        raise UserError(
            f"{model} asks for its terms to be accepted on its page, and for a token: "
            "`hf auth login`, or HF_TOKEN."
        ) from e
    except errors.RepositoryNotFoundError as e:
        raise UserError(
            f"{missing}, and the hub has none either, or it is private: check the name, or "
            "`hf auth login`."
        ) from e
    # Of the network there are many errors, of several packages.
    except (OSError, RuntimeError, ValueError, errors.HfHubHTTPError) as e:
        raise UserError(f"{missing}, and the hub cannot be reached. {fetch}.") from e


def _lacking(folder: Path, weights: bool) -> str:
    """What a snapshot still lacks: what asks for a configuration or a tokenizer fetches no more."""
    if weights and not (folder / "config.json").exists():
        return "config.json"
    if weights and (folder / INDEX).exists() and not (folder / SINGLE).exists():
        named = read_json_object(folder / INDEX).get("weight_map")
        named = sorted(set(map(str, named.values()))) if isinstance(named, dict) else []
        if absent := [name for name in named if not (folder / name).exists()]:
            return ", ".join(absent)
    # Of a pickle the reader says that it is one.
    elif weights and not any(
        p.name in (SINGLE, FLAX) or p.suffix == ".bin" for p in folder.glob("*")
    ):
        return f"{SINGLE} and {INDEX}"
    return "" if any((folder / name).exists() for name in _VOCABULARIES) else _TOKENIZER
