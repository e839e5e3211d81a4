"""A SeqIO task over rows that a function yields: what all tasks of this folder are."""

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import seqio
import tensorflow as tf

Rows = Callable[[], Iterable[Mapping[str, Any]]]


def register_rows(
    name: str, split: str, rows: Rows, features: Mapping[str, seqio.Feature], **kwargs: Any
) -> None:
    """Registers a task of one split, in the place of one of that name.

    Args:
      name: of the task.
      split: its only one.
      rows: yields the examples, texts and lists of texts by name, the same at every call.
      features: of the tokens.
      **kwargs: further arguments of `seqio.Task`.
    """
    seqio.TaskRegistry.remove(name)
    seqio.TaskRegistry.add(
        name,
        source=seqio.FunctionDataSource(
            dataset_fn=functools.partial(rows_dataset, rows=rows), splits=[split]
        ),
        preprocessors=[
            functools.partial(seqio.preprocessors.tokenize, with_eos=False),
            seqio.CacheDatasetPlaceholder(),
            seqio.preprocessors.append_eos_after_trim,
        ],
        output_features=features,
        **kwargs,
    )


def rows_dataset(split: str, shuffle_files: bool, seed: int | None = None, *, rows: Rows):
    """Returns the rows as a `tf.data.Dataset`; they are one file, so nothing is shuffled."""
    del split, shuffle_files, seed
    first = next(iter(rows()))
    signature = {
        key: tf.TensorSpec([None] if isinstance(value, list) else [], tf.string)
        for key, value in first.items()
    }
    return tf.data.Dataset.from_generator(rows, output_signature=signature)
