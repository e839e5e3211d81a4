"""A copy of the vocabulary in a model's folder, so that the folder can be moved.

The files have the names that Hugging Face gives them; `vocabulary.json` says which class reads
them.
"""

import os
from pathlib import Path
from typing import Any

from ckl_jax.data.text import masked_vocabulary
from ckl_jax.data.text.byte_level import ByteLevelVocabulary, SpanVocabulary, TokenizerVocabulary
from ckl_jax.data.text.byte_vocabulary import ByteVocabulary
from ckl_jax.data.text.masked_vocabulary import MaskedVocabulary
from ckl_jax.data.text.vocabularies import Vocabulary, model_bytes
from ckl_jax.errors import UserError
from ckl_jax.files import os_errors, read_json_object, write_file, write_json

RECORD = "vocabulary.json"
_SENTENCE_PIECE = "spiece.model"
_CLASSES = (
    Vocabulary,
    ByteLevelVocabulary,
    MaskedVocabulary,
    TokenizerVocabulary,
    ByteVocabulary,
    SpanVocabulary,
)
_READERS = {cls.__name__: cls for cls in _CLASSES}


def save_copy(vocabulary: Any, folder: str | os.PathLike) -> None:
    """Copies the files of a vocabulary of this project into a folder; other vocabularies are not
    copied.
    """
    if vocabulary is None or type(vocabulary).__reduce__ is object.__reduce__:
        return
    reader, (path, *arguments) = vocabulary.__reduce__()[:2]
    if reader not in _READERS.values():
        return
    sources = getattr(vocabulary, "files", None) or [path]
    copies: dict[str, str] = {}
    for source in map(Path, sources):
        name = _SENTENCE_PIECE if reader is Vocabulary else source.name
        target = Path(folder) / name
        made = name == _SENTENCE_PIECE and source.suffix == ".json"
        copies |= {} if made else {name: os.fspath(source)}
        if target.absolute() != source.absolute():
            with os_errors(source, "read"):
                write_file(target, model_bytes(str(source)) if made else source.read_bytes())
    record = {"reader": reader.__name__, "arguments": arguments, "copied_from": os.fspath(path)}
    write_json(Path(folder) / RECORD, record | {"copies": copies})


def names(folder: str | os.PathLike) -> list[str]:
    """The files of the copy in a model's folder, its record first; none without a copy."""
    path = Path(folder) / RECORD
    if not os.path.lexists(path):
        return []
    copies = read_json_object(path).get("copies")
    # A strange record may name files outside the folder.
    files = (Path(name).name for name in copies) if isinstance(copies, dict) else ()
    return [RECORD, *dict.fromkeys([_SENTENCE_PIECE, *files])]


def open_vocabulary(path: str | os.PathLike) -> Any:
    """A vocabulary by its files, or the copy in a model's folder.

    Raises:
      UserError: see `open_copy` and `masked_vocabulary.open_vocabulary`.
    """
    if os.path.lexists(Path(path) / RECORD):
        return open_copy(os.fspath(path))
    return masked_vocabulary.open_vocabulary(path)


def open_copy(folder: str) -> Any:
    """The vocabulary whose copy is in a model's folder.

    Raises:
      UserError: its record or its files are missing or malformed.
    """
    path = Path(folder) / RECORD
    record = read_json_object(path)
    reader, arguments = _READERS.get(str(record.get("reader"))), record.get("arguments")
    if reader is None or not isinstance(arguments, list):
        raise UserError(f"{path} names no vocabulary of this version; bind VOCABULARY instead.")
    place = Path(folder) / _SENTENCE_PIECE if reader is Vocabulary else folder
    try:
        return reader(place, *arguments)
    except TypeError:
        raise UserError(
            f"arguments in {path} is {arguments!r}, which {reader.__name__} does not take; bind "
            "VOCABULARY instead."
        ) from None
