"""Folders of one experiment that differ by its seed."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from ckl_jax.errors import UserError
from ckl_jax.files import read_json

# Bindings that say when a model is asked, and not what it becomes.
_OF_WHEN = ("EVAL_PERIOD",)


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
        if other := [n for n in names if _deciding(first.get(n)) != _deciding(settings.get(n))]:
            raise UserError(
                f"{folder} was made with other settings than {folders[0]} ({', '.join(other)}); "
                "give folders that differ by their seed alone."
            )


def _deciding(setting: Any) -> Any:
    """A setting, of gin's bindings without those of when a model is asked."""
    if not isinstance(setting, list):
        return setting
    return [b for b in setting if str(b).partition("=")[0].strip() not in _OF_WHEN]
