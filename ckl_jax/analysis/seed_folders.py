"""Folders of one experiment that differ by its seed."""

from collections.abc import Collection, Sequence
from pathlib import Path

from ckl_jax.errors import UserError
from ckl_jax.files import read_json


def check_seeds(folders: Sequence[str | Path], record: str, free: Collection[str] = ()) -> None:
    """Refuses folders that are not of different seeds and else the same settings.

    Args:
      folders: each with its settings.
      record: the file of them.
      free: settings that may differ besides the seed.

    Raises:
      UserError: a folder has no record, the seed of another, or other settings.
    """
    first, seeds = read_json(Path(folders[0]) / record), set()
    for folder in folders:
        settings = read_json(Path(folder) / record)
        if settings.get("seed") in seeds:
            raise UserError(
                f"{folder} has the seed {settings.get('seed')} of another folder; give folders of "
                "different seeds."
            )
        seeds.add(settings.get("seed"))
        names = [n for n in {**first, **settings} if n not in ("seed", *free)]
        if other := [n for n in names if first.get(n) != settings.get(n)]:
            raise UserError(
                f"{folder} was made with other settings than {folders[0]} ({', '.join(other)}); "
                "give folders that differ by their seed alone."
            )
