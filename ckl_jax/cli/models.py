"""Commands that convert checkpoints from and to other formats, and average them."""

import importlib
import os
import sys
from typing import Annotated, Any, Literal

from tyro.conf import Positional, arg

from ckl_jax.errors import UserError
from ckl_jax.options import Names


def import_hf(
    *,
    model: str,
    out: str,
    vocab_size: int | None = None,
    legacy_tokens: bool = False,
    trust_imports: Names = (),
) -> dict[str, Any]:
    """Convert a Hugging Face model into a checkpoint.

    Args:
      model: Folder with config.json and safetensors, or a name of the hub, such as
        Qwen/Qwen3-0.6B.
      out: MODEL_DIR to write.
      vocab_size: Grow the embedding to so many tokens.
      legacy_tokens: Add the five tokens that TemporalWiki's code added to GPT-2.
      trust_imports: Modules of yours to import, such as that of an architecture.
    """
    from ckl_jax.checkpoints.hub import folder_of
    from ckl_jax.convert.hugging_face import import_checkpoint

    _import(trust_imports)
    print(import_checkpoint(folder_of(model), out, vocab_size, legacy_tokens))
    return {"out": out}


def _import(modules: Names) -> None:
    """Imports a user's modules, of the working directory too.

    Raises:
      UserError: one cannot be imported.
    """
    for name in modules:
        sys.path.append(os.getcwd())
        try:
            importlib.import_module(name)
        except ImportError as e:
            raise UserError(f"--trust-imports {name}: {e}.") from e
        finally:
            sys.path.pop()


def import_haiku(*, weights: str, heads: int, out: str) -> dict[str, Any]:
    """Convert a Haiku Transformer-XL into a checkpoint.

    Args:
      weights: File of module/param, .npz or .safetensors.
      heads: Attention heads of a layer.
      out: MODEL_DIR to write.
    """
    from ckl_jax.convert import haiku

    print(haiku.import_haiku(weights, heads, out))
    return {"out": out}


def export_hf(
    *, model: str, out: str, like: str | None = None, trust_imports: Names = ()
) -> dict[str, Any]:
    """Convert a checkpoint into a Hugging Face model.

    Args:
      model: MODEL_DIR or checkpoint_<step>.
      out: Folder to write.
      like: The Hugging Face model that it came from: config.json, its folder, or a name of the hub;
        by default the config.json kept with MODEL.
      trust_imports: Modules of yours to import, such as that of an architecture.
    """
    from ckl_jax.convert.hugging_face import export_checkpoint

    _import(trust_imports)
    print(export_checkpoint(model, like, out))
    return {"out": out}


def import_peft(*, adapter: str, model: str, out: str, like: str | None = None) -> dict[str, Any]:
    """Convert a LoRA adapter of PEFT into a checkpoint.

    Args:
      adapter: Folder that PEFT's save_pretrained wrote.
      model: The base model, MODEL_DIR or checkpoint_<step>.
      out: MODEL_DIR to write.
      like: The Hugging Face model of the base: config.json, its folder, or a name of the hub; by
        default the config.json kept with MODEL.
    """
    from ckl_jax.convert import peft

    print(peft.import_peft(adapter, model, like, out))
    return {"out": out}


def export_peft(
    *,
    model: str,
    out: str,
    like: str | None = None,
    scale: float | None = None,
    base: str | None = None,
) -> dict[str, Any]:
    """Convert a LoRA run into an adapter of PEFT.

    Args:
      model: MODEL_DIR or checkpoint_<step>.
      out: Folder to write; the base model goes to its folder base/.
      like: The Hugging Face model of the base: config.json, its folder, or a name of the hub; by
        default the config.json kept with MODEL.
      scale: Scale of the adapters; by default the recorded one.
      base: Folder or hub name of the base model, which the adapter names then; its weights are
        written again only if others are under the adapters.
    """
    from ckl_jax.convert import peft

    print(peft.export_peft(model, like, out, scale, base))
    return {"out": out}


def average(
    models: Annotated[Positional[tuple[str, ...]], arg(metavar="MODEL...")],
    *,
    out: str,
    weights: tuple[float, ...] = (),
    base: str | None = None,
    rule: Literal["sum", "ties", "dare"] = "sum",
    density: float = 0.2,
    scale: float = 1.0,
    seed: int = 0,
) -> dict[str, Any]:
    """Average the weights of models (WiSE-FT), or merge several updates of one (TIES, DARE).

    Args:
      models: MODEL_DIR or checkpoint_<step> of each.
      out: MODEL_DIR to write.
      weights: Weight of each model, summing to 1; by default all alike.
      base: MODEL_DIR or checkpoint_<step> that all of them started from; then what each adds to it
        is merged, LoRA's adapters too.
      rule: With --base, how: the weighted sum, TIES or DARE.
      density: Fraction of the numbers of an update that TIES and DARE keep.
      scale: Factor of the merged update.
      seed: Random seed of the entries that DARE drops.
    """
    from ckl_jax.convert.average import Merge
    from ckl_jax.convert.average import average as job

    merge = None if base is None else Merge(base, rule, density, scale, seed)
    print(job(models, weights or [1.0 / len(models)] * len(models), out, merge))
    return {"out": out}
