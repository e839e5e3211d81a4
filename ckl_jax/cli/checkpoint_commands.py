"""`ckl import-...`, `ckl export-...`, `ckl average`: checkpoints from elsewhere and to there."""

import argparse
from collections.abc import Callable


def add(commands, command: Callable[..., argparse.ArgumentParser]) -> None:
    """Adds the commands; `command` makes one of name, summary and function."""
    adders = (_import_hf, _import_haiku, _export_hf, _import_peft, _export_peft, _average)
    for add_one in adders:
        add_one(commands, command)


def _import_hf(commands, command) -> None:
    p = command(commands, "import-hf", "a Hugging Face model as a checkpoint", import_hf)
    p.add_argument("--model", required=True, help="folder with config.json and safetensors")
    p.add_argument("--out", required=True, help="MODEL_DIR to write")
    p.add_argument("--vocab-size", type=int, default=None, help="grow the embedding to so many")
    p.add_argument(
        "--legacy-tokens",
        action="store_true",
        help="add the five tokens that TemporalWiki's code added to GPT-2",
    )


def import_hf(args: argparse.Namespace) -> None:
    from ckl_jax.convert.hugging_face import import_checkpoint

    print(import_checkpoint(args.model, args.out, args.vocab_size, args.legacy_tokens))


def _import_haiku(commands, command) -> None:
    p = command(commands, "import-haiku", "a Haiku Transformer-XL as a checkpoint", import_haiku)
    p.add_argument("--weights", required=True, help=".npz or .safetensors of module/param")
    p.add_argument("--heads", required=True, type=int, help="heads of a layer")
    p.add_argument("--out", required=True, help="MODEL_DIR to write")


def import_haiku(args: argparse.Namespace) -> None:
    from ckl_jax.convert import haiku

    print(haiku.import_haiku(args.weights, args.heads, args.out))


def _export_hf(commands, command) -> None:
    p = command(commands, "export-hf", "a checkpoint as a Hugging Face model", export_hf)
    p.add_argument("--model", required=True, help="MODEL_DIR or checkpoint_<step>")
    p.add_argument("--like", required=True, help="config.json of the Hugging Face model")
    p.add_argument("--out", required=True, help="folder to write")


def export_hf(args: argparse.Namespace) -> None:
    from ckl_jax.convert.hugging_face import export_checkpoint

    print(export_checkpoint(args.model, args.like, args.out))


def _import_peft(commands, command) -> None:
    p = command(commands, "import-peft", "a PEFT LoRA adapter as a checkpoint", import_peft)
    p.add_argument("--adapter", required=True, help="folder that PEFT's save_pretrained wrote")
    p.add_argument("--model", required=True, help="the base: MODEL_DIR or checkpoint_<step>")
    p.add_argument("--like", required=True, help="config.json of the base")
    p.add_argument("--out", required=True, help="MODEL_DIR to write")


def import_peft(args: argparse.Namespace) -> None:
    from ckl_jax.convert import peft

    print(peft.import_peft(args.adapter, args.model, args.like, args.out))


def _export_peft(commands, command) -> None:
    p = command(commands, "export-peft", "a LoRA run as an adapter of PEFT", export_peft)
    p.add_argument("--model", required=True, help="MODEL_DIR or checkpoint_<step>")
    p.add_argument("--like", required=True, help="config.json of the base")
    p.add_argument("--out", required=True, help="folder to write; the base goes to its base/")
    p.add_argument("--scale", type=float, default=None, help="of the adapters, if not recorded")


def export_peft(args: argparse.Namespace) -> None:
    from ckl_jax.convert import peft

    print(peft.export_peft(args.model, args.like, args.out, args.scale))


def _average(commands, command) -> None:
    p = command(commands, "average", "a model between models (WiSE-FT)", average)
    p.add_argument("models", nargs="+", metavar="MODEL", help="MODEL_DIR or checkpoint_<step>")
    p.add_argument(
        "--weights",
        nargs="+",
        type=float,
        default=None,
        metavar="W",
        help="of each model, summing to 1; none: all alike",
    )
    p.add_argument("--out", required=True, help="MODEL_DIR to write")


def average(args: argparse.Namespace) -> None:
    from ckl_jax.convert.average import average as job

    weights = args.weights or [1.0 / len(args.models)] * len(args.models)
    print(job(args.models, weights, args.out))
