"""Verifies dumps by the SHA-1 sums that Wikimedia publishes beside them.

They stand in `<wiki>-<date>-sha1sums.txt` or `dumpstatus.json`; a dump without is not verified.
"""

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from ckl_jax import files
from ckl_jax.data.compressed import text_lines
from ckl_jax.errors import UserError

STATUS = "dumpstatus.json"


def verify(dumps: Iterable[str | os.PathLike]) -> int:
    """Compares files, or all files of folders, with their published sums.

    Returns:
      The number of files that were compared.

    Raises:
      UserError: a sum differs, or a file of sums cannot be read.
    """
    paths = [path for dump in dumps for path in files_of(dump)]
    known = {folder: _published(folder) for folder in {path.parent for path in paths}}
    compared = 0
    for path in paths:
        if path.name in known[path.parent]:
            wanted, source = known[path.parent][path.name]
            with files.os_errors(path, "read"), open(path, "rb") as f:
                digest = hashlib.file_digest(f, "sha1").hexdigest()
            if digest != wanted:
                raise UserError(
                    f"{path} is damaged or unfinished: its SHA-1 is {digest}, but {source.name} "
                    f"says {wanted}; fetch it again."
                )
            compared += 1
    return compared


def files_of(dump: str | os.PathLike) -> list[Path]:
    """The files of a folder, in order; or the file itself."""
    path = Path(dump)
    return sorted(p for p in path.iterdir() if p.is_file()) if path.is_dir() else [path]


def _published(folder: Path) -> dict[str, tuple[str, Path]]:
    """{name of a file: its SHA-1, and the file that says so}."""
    published = {}
    if (status := folder / STATUS).is_file():
        for job in _objects(status, files.read_json_object(status), "jobs"):
            listed = job.get("files") or {}
            for name, about in zip(listed, _objects(status, job, "files"), strict=True):
                if "sha1" not in about:  # of a job that is not done yet
                    continue
                if not (isinstance(about["sha1"], str) and len(about["sha1"]) == 40):
                    raise UserError(f"{status}: the sha1 of {name} is no SHA-1; fetch it again.")
                published[name] = about["sha1"].lower(), status
    for sums in sorted(folder.glob("*sha1sums*.txt")):
        for number, line in enumerate(text_lines(sums), 1):
            digest, _, name = line.strip().partition(" ")
            name = name.strip().lstrip("*")
            if line.strip() and not (len(digest) == 40 and name):
                raise UserError(f"{sums}, line {number}: not 'SHA-1 NAME'; fetch it again.")
            published[name] = digest.lower(), sums
    return published


def _objects(status: Path, parent: dict, name: str) -> list[dict]:
    """The values of an object of objects in the status file, which may be missing."""
    found = parent.get(name) or {}
    values = list(found.values()) if isinstance(found, dict) else [None]
    if not all(isinstance(value, dict) for value in values):
        raise UserError(f"{status}: {name} is not an object of objects; fetch it again.")
    return values
