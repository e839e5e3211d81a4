"""Real data that is not part of the repository."""

import os
from pathlib import Path

import pytest

FOLDER = Path(os.environ.get("CKL_DATA", Path(__file__).parents[1] / "../shared/data"))


def shared_data(*parts: str) -> Path:
    """A path below the folder of real data; the test is skipped where it is absent."""
    path = FOLDER.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"{path} is not here; CKL_DATA names the folder of real data")
    return path


def wikipedia_excerpt(name: str) -> Path:
    """An excerpt of a dump, such as "enwiki-20150305"."""
    return shared_data("wikipedia", f"{name}-excerpt.xml.bz2")


def wikidata_excerpt(name: str) -> Path:
    """An excerpt of a dump, such as "201412"."""
    return shared_data("wikidata", f"wikidata-{name}-excerpt.json.bz2")
