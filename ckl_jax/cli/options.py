"""What several commands of `ckl` take alike."""

import argparse


def names(text: str) -> tuple[str, ...]:
    """Comma-separated names, each once, without the blanks around them."""
    return tuple(dict.fromkeys(name for part in text.split(",") if (name := part.strip())))


def add_world(p: argparse.ArgumentParser) -> None:
    """Adds what says which world: --seed, --size, --source, --data."""
    p.add_argument("--seed", type=int, default=0, help="of the simulated world")
    p.add_argument("--size", default="small", help="tiny, small, medium or large")
    p.add_argument("--source", default="simulated", help="simulated or wikidata (real facts)")
    p.add_argument("--data", default=None, help="folder of the real facts (docs/wikidata.md)")
