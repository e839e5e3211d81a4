"""`ckl world`, `ckl data quiz` and `ckl data kilt`: files of the facts of a world."""

import argparse
from collections.abc import Callable
from pathlib import Path

from ckl_jax.cli.options import add_world


def add(commands, command: Callable[..., argparse.ArgumentParser]) -> None:
    """Adds the commands to `commands`; `command` makes one of name, summary and function."""
    _world(commands, command)


def add_data(kinds, command: Callable[..., argparse.ArgumentParser]) -> None:
    """Adds the commands to `kinds`; `command` makes one of name, summary and function."""
    _quiz(kinds, command)
    _kilt(kinds, command)


def _world(commands, command) -> None:
    p = command(commands, "world", "write a simulated world in CKL's file formats", world)
    p.add_argument("--out", required=True, help="folder to write")
    add_world(p)


def world(args: argparse.Namespace) -> None:
    from ckl_jax.world.ckl import build_world

    manifest = build_world(args.out, args.seed, args.size, source=args.source, data_dir=args.data)
    for name, rows in manifest["counts"].items():
        print(f"{rows:8,}  {name}")


def _quiz(kinds, command) -> None:
    p = command(kinds, "quiz", "a relational dataset like BEAR, of a world's facts", quiz)
    p.add_argument("--out", required=True, help="folder of the dataset")
    add_world(p)
    p.add_argument("--date", default=None, help="ISO date of the facts; none: before the news")
    p.add_argument("--templates", type=int, default=3, help="phrasings of a relation at most")
    p.add_argument("--instances", type=int, default=None, help="facts of a relation at most")


def quiz(args: argparse.Namespace) -> None:
    from ckl_jax.world.ckl import open_world
    from ckl_jax.world.quiz import write_quiz

    world = open_world(args.source, args.seed, args.size, args.data)
    counts = write_quiz(world, args.out, args.date, args.templates, args.instances)
    for code, facts in counts.items():
        print(f"{facts:8,}  {code}")


def _kilt(kinds, command) -> None:
    p = command(kinds, "kilt", "KILT's data sets, of a world's facts", kilt)
    p.add_argument("--out", required=True, help="folder of the files")
    add_world(p)


def kilt(args: argparse.Namespace) -> None:
    from ckl_jax.papers.ckl.data.simulated_kilt import write_kilt
    from ckl_jax.world.ckl import open_world

    world = open_world(args.source, args.seed, args.size, args.data)
    for name, records in write_kilt(world, args.out).items():
        print(f"{records:8,}  {Path(args.out) / name}")
