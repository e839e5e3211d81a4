"""Reads the `config.gin` or `model.gin` of a model folder that was moved since it was written.

They name the folder and the vocabulary as they were when they were written. A folder that has been
moved, or is read from another working directory, holds a copy of the vocabulary:
`data.text.vocabulary_copy`.
"""

import filecmp
import os
import re
from pathlib import Path

from ckl_jax.files import read_json_object

_RECORD = "vocabulary.json"  # of the copy
_MODEL_DIR = re.compile(r"^MODEL_DIR *= *(?:\\\n *)?(['\"])(?P<folder>.*)\1[ \t]*$", re.M)
_COPY = """
from ckl_jax.data.text import vocabulary_copy
VOCABULARY = @vocabulary_copy.open_copy()
vocabulary_copy.open_copy.folder = {folder!r}
"""


def translate(path: str | Path, text: str) -> str:
    """Appends statements to a gin text that point it to the folder's current location.

    Raises:
      UserError: the record of the copy cannot be read.
    """
    path = Path(path).absolute()
    folder = path.parent
    if path.name not in ("config.gin", "model.gin") or not any(folder.glob("checkpoint_*")):
        return text
    named = _MODEL_DIR.search(text)
    if named and Path(named["folder"]).absolute() != folder:
        text += f"\nMODEL_DIR = {str(folder)!r}\n"
    if re.search(r"^VOCABULARY *=", text, re.M) and _has_moved(folder / _RECORD):
        text += _COPY.format(folder=str(folder))
    return text


def _has_moved(path: Path) -> bool:
    """Whether what was copied is no longer where it was, or something else lies there."""
    if not os.path.lexists(path):
        return False
    record = read_json_object(path)
    copies = record.get("copies")  # records of earlier versions have none
    copies = copies.items() if isinstance(copies, dict) else ()
    return not os.path.exists(str(record.get("copied_from"))) or any(
        _differ(path.parent / name, str(source)) for name, source in copies
    )


def _differ(copy: Path, source: str) -> bool:
    try:
        return os.path.lexists(copy) and not (
            os.path.isfile(source) and filecmp.cmp(copy, source, shallow=False)
        )
    except (OSError, ValueError):
        return True
