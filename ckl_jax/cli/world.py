"""`ckl world`, and the options that say which world a command takes."""

import dataclasses
from typing import Any, Literal

from ckl_jax.cli.work import Overwrite
from ckl_jax.files import claimed_folder
from ckl_jax.options import Flat
from ckl_jax.world.facts import SOURCES
from ckl_jax.world.timeline import SIZES, VARIANTS


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorldSettings:
    """Which world.

    Attributes:
      seed: Random seed of the simulated world.
      size: Size of the world.
      world: Simulated world: disjoint, whose texts never state a probed fact in a probe's wording,
        or legacy, whose probes are rows of the training text.
      source: Simulated facts, or real ones of Wikidata or the World Factbook.
      data: Folder of the real facts (docs/real_facts.md).
    """

    seed: int = 0
    size: Literal[*SIZES] = "small"
    world: Literal[*VARIANTS] | None = None
    source: Literal[*SOURCES] = "simulated"
    data: str | None = None


def world(
    settings: Flat[WorldSettings], *, out: str, overwrite: Overwrite = False
) -> dict[str, Any]:
    """Write a simulated world in CKL's file formats.

    Args:
      out: Folder to write.
    """
    from ckl_jax.world.ckl import build_world, check_data_dir, check_world

    check_data_dir(settings.source, settings.data)
    check_world(settings.source, settings.size, settings.data, settings.world)
    with claimed_folder(out, "ckl world", overwrite):
        manifest = build_world(
            out,
            settings.seed,
            settings.size,
            source=settings.source,
            data_dir=settings.data,
            variant=settings.world,
            replace=overwrite,
        )
    for name, rows in manifest["counts"].items():
        print(f"{rows:8,}  {name}")
    return manifest
