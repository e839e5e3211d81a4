"""The folder of a model by its name on Hugging Face's hub: its cache first, then the network."""

import re
from pathlib import Path

from ckl_jax.errors import UserError

# What a model needs; code, pickles and other formats of weights stay there.
_FILES = ("*.json", "*.safetensors", "*.model", "vocab.txt", "merges.txt", "vocab.bpe")
# Models that had names without an owner.
_OWNERLESS = re.compile(r"(distil|xlm-)?(gpt2|bert|roberta|t5)(-[\w-]+)?")
_NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")


def folder_of(model: str) -> str:
    """The folder of a model: `model` itself, or where the hub's model of that name lies.

    Args:
      model: a folder, which comes first, or a name such as "Qwen/Qwen3-0.6B".

    Raises:
      UserError: there is neither, the hub cannot be reached, or it asks for a token.
    """
    parent = Path(model).parent
    # "runs/lora" beside a folder `runs` is a folder that is missing, not a name.
    is_local = Path(model).exists() or (parent != Path(".") and parent.exists())
    if is_local or not _NAME.fullmatch(model):
        return model
    try:
        from huggingface_hub import constants, errors, snapshot_download
    except ImportError:
        return model
    try:
        return snapshot_download(model, allow_patterns=_FILES, local_files_only=True)
    except (errors.LocalEntryNotFoundError, errors.HFValidationError):
        pass
    # Other names are more likely of a folder that was mistyped, and the network takes its time.
    if "/" not in model and not _OWNERLESS.fullmatch(model):
        return model
    fetch = f"`hf download {model}` where there is a network fetches it"
    missing = f"There is no folder {model}, and no model of that name in {constants.HF_HUB_CACHE}"
    if constants.HF_HUB_OFFLINE:
        raise UserError(f"{missing}; HF_HUB_OFFLINE is set. {fetch}.")
    try:
        return snapshot_download(model, allow_patterns=_FILES)
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
