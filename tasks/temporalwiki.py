"""TemporalWiki's diffsets and probes as SeqIO tasks, and the diffset as a TFDS builder.

`register_diffset(folder, vocabulary)` registers a folder of `ckl data diffsets` as
`twiki_diff_OLD_NEW_lm`: `targets` is "title. text" of each article, for language models.
`register_probes(folder, vocabulary)` registers the CSV files of `ckl data probes` as
`twiki_probes_MMDD_MMDD_CLASS`: `targets` is "subject relation object" (split validation).
"""

import functools
import os
from collections.abc import Iterator
from pathlib import Path

import seqio

from ckl_jax.data.facts.fact_files import read_probe_csv
from ckl_jax.data.text.documents import read_documents
from ckl_jax.errors import UserError
from ckl_jax.files import read_json
from ckl_jax.tasks.rows import Rows, register_rows


def register_diffset(folder: str | os.PathLike, vocabulary: seqio.Vocabulary) -> str:
    """Registers a finished diffset and returns the name of its task.

    Raises:
      UserError: the folder holds none.
    """
    path = Path(folder) / "manifest.json"
    if not path.is_file():
        raise UserError(f"{folder} holds no finished diffset; make it with `ckl data diffsets`.")
    documents = Path(folder) / read_json(path)["documents"]
    name = documents.stem.replace("diffset", "twiki_diff") + "_lm"
    _register(name, "train", functools.partial(_articles, documents), vocabulary)
    return name


def register_probes(folder: str | os.PathLike, vocabulary: seqio.Vocabulary) -> list[str]:
    """Registers the probes of a folder and returns the names of their tasks.

    Raises:
      UserError: the folder holds none.
    """
    paths = sorted(Path(folder).glob("*-*_*.csv"))
    if not paths:
        raise UserError(f"{folder} holds no probes; make them with `ckl data probes`.")
    names = []
    for path in paths:
        if next(read_probe_csv(path), None):
            name = f"twiki_probes_{path.stem.replace('-', '_')}"
            _register(name, "validation", functools.partial(_facts, path), vocabulary)
            names.append(name)
    return names


def _register(name: str, split: str, rows: Rows, vocabulary: seqio.Vocabulary) -> None:
    features = {"targets": seqio.Feature(vocabulary=vocabulary, add_eos=False)}
    register_rows(name, split, rows, features)


def _articles(path: Path) -> Iterator[dict[str, str]]:
    for document in read_documents(path):
        yield {"targets": f"{document.title}. {document.text}"}


def _facts(path: Path) -> Iterator[dict[str, str]]:
    for row in read_probe_csv(path):
        yield {**row, "targets": " ".join(row.values())}
