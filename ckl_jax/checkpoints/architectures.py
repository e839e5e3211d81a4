"""The registered architectures, by configuration class and by Hugging Face's `model_type`."""

from collections.abc import Collection, Mapping

from ckl_jax import checks
from ckl_jax.checkpoints import (
    from_haiku,
    hf_bert,
    hf_decoder,
    hf_gpt2,
    hf_modernbert,
    hf_t5,
    hf_t5gemma,
)
from ckl_jax.checkpoints.architecture import Architecture, Config
from ckl_jax.errors import UserError
from ckl_jax.models.decoder_only import DecoderOnlyModel

SIZES = {  # here: in `config.json`
    "vocab_size": "vocab_size",
    "emb_dim": "hidden_size",
    "num_heads": "num_attention_heads",
    "head_dim": "head_dim",
    "mlp_dim": "intermediate_size",
    "num_layers": "num_hidden_layers",
    "max_positions": "max_position_embeddings",
}
_registered: dict[type, Architecture] = {}


def register(architecture: Architecture) -> None:
    """Makes an architecture known. Its module calls this when it is imported.

    Registering a record of the same name and configuration class again replaces it.

    Raises:
      UserError: another architecture has its configuration class, its gin name or one of its model
        types. Architectures over one module need a subclass of its configuration each.
    """
    # A notebook that reloads its module registers the same record a second time.
    again = [a for a in known() if _identity(a) == _identity(architecture)]
    for other in known():
        shared = sorted(_claims(architecture) & _claims(other))
        if shared and other not in again:
            raise UserError(
                f"The architectures {other.name} and {architecture.name} both claim {shared[0]!r}; "
                "give one of them a model_type and a configuration class of its own."
            )
    for other in again:
        del _registered[other.config]
    _registered[architecture.config] = architecture


def known() -> tuple[Architecture, ...]:
    """All registered architectures, ours first."""
    return tuple(_registered.values())


def of_config(config: Config) -> Architecture:
    """The architecture of a configuration. A subclass needs a record of its own.

    Raises:
      UserError: none is registered for its class.
    """
    # By exact class: a subclass may have parameters that the record's table does not name.
    if type(config) not in _registered:
        name = type(config).__name__
        raise _unknown(f"{name} is the configuration of no registered architecture")
    return _registered[type(config)]


def of_model_type(model_type: str) -> Architecture:
    """The architecture of a `model_type` of Hugging Face; `UserError` if none is registered."""
    for architecture in known():
        if model_type in _types(architecture):
            return architecture
    types = [f"{a.name} ({', '.join(_types(a))})" for a in known() if a.hugging_face]
    raise UserError(
        f"config.json says model_type {model_type!r}: only {', '.join(types)} can be imported. "
        f"{_REGISTER}"
    )


def decoder_of(model_type: str) -> Architecture:
    """The decoder-only architecture of a `model_type`; `UserError` if none is registered."""
    decoders = {t: a for a in known() if issubclass(a.model, DecoderOnlyModel) for t in _types(a)}
    checks.require_choice(decoders, **{"The architecture": model_type})
    return decoders[model_type]


def new_config(model_type: str, sizes: Mapping[str, int]) -> Config:
    """The configuration of a new model of a family of decoders, as its `config.json` would say.

    Args:
      model_type: at Hugging Face.
      sizes: `vocab_size`, `emb_dim`, `num_heads`, `head_dim`, `mlp_dim`, `num_layers` and
        `max_positions`.

    Raises:
      UserError: no decoder is registered for it, or it cannot have such sizes.
    """
    settings = {there: sizes[here] for here, there in SIZES.items()}
    heads = {"num_key_value_heads": sizes["num_heads"]}  # as many, whatever the family's default
    form = decoder_of(model_type).require_hugging_face()
    return form.config_from_hf({"model_type": model_type, **settings, **heads})


def of_gin_names(names: Collection[str], source: str) -> Architecture:
    """The architecture whose configuration is among names in a gin file, such as "t5.T5Config".

    Args:
      names: classes and functions that the file binds.
      source: the file, for the error.

    Raises:
      UserError: no registered architecture is among them.
    """
    for architecture in known():
        if architecture.gin_name in names:
            return architecture
    raise _unknown(f"{source} configures no registered architecture")


def names(having: str) -> str:
    """The names of the architectures that have a field, such as "T5, GPT-2" for "peft"."""
    return ", ".join(a.name for a in known() if getattr(a, having) is not None)


_REGISTER = (
    "To add another one, write a module that registers it, and name it with --trust-imports "
    "(docs/architecture.md)."
)


def _unknown(problem: str) -> UserError:
    listed = ", ".join(f"{a.name} ({a.gin_name})" for a in known())
    return UserError(f"{problem}; there are {listed}. {_REGISTER}")


def _types(architecture: Architecture) -> tuple[str, ...]:
    form = architecture.hugging_face
    return form.model_types if form else ()


def _identity(architecture: Architecture) -> tuple[str, str]:
    cls = architecture.config  # another object if its module was reloaded
    return architecture.name, f"{cls.__module__}.{cls.__qualname__}"


def _claims(architecture: Architecture) -> set[str]:
    return {architecture.gin_name, *_types(architecture)}


# Ours register here rather than at import of their modules, so that the order is fixed.
for _architecture in (
    hf_t5.ARCHITECTURE,
    hf_gpt2.ARCHITECTURE,
    hf_bert.ARCHITECTURE,
    from_haiku.ARCHITECTURE,
    hf_decoder.ARCHITECTURE,
    hf_modernbert.ARCHITECTURE,
    hf_t5gemma.ARCHITECTURE,
):
    register(_architecture)
