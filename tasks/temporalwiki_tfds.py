"""TFDS builder of a diffset: array_record files, which are built and read without TensorFlow.

builder = TwikiDiffset(source="diff-0809", data_dir="tfds")
builder.download_and_prepare(file_format="array_record")
builder.as_data_source()["train"][0]
"""

import os
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

from ckl_jax.files import read_json
from ckl_jax.papers.temporalwiki.data.diffsets import read_records


class TwikiDiffset(tfds.core.GeneratorBasedBuilder):
    """Records of a folder that `ckl data diffsets` made: page_id, title, kind, text."""

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES = {"1.0.0": "Algorithm 1 of TemporalWiki."}

    def __init__(self, *, source: str | os.PathLike, **kwargs: Any):
        """Names the folder; the configuration is the pair of dates, OLD_NEW.

        Raises:
          UserError: it holds no finished diffset.
        """
        self._source = os.fspath(source)
        next(read_records(self._source), None)
        manifest = read_json(os.path.join(self._source, "manifest.json"))
        name = "_".join(manifest[side]["date"] or side for side in ("old", "new"))
        config = tfds.core.BuilderConfig(name=name, version=self.VERSION)
        super().__init__(config=config, **kwargs)

    def _info(self) -> tfds.core.DatasetInfo:
        text = tfds.features.Text
        features = {"page_id": tfds.features.Scalar(np.int64), "title": text(), "kind": text()}
        return self.dataset_info_from_configs(
            features=tfds.features.FeaturesDict({**features, "text": text()}),
            homepage="https://aclanthology.org/2022.emnlp-main.418/",
        )

    def _split_generators(self, dl_manager):
        del dl_manager
        return {"train": self._generate_examples()}

    def _generate_examples(self):
        for i, record in enumerate(read_records(self._source)):
            yield i, {name: record[name] for name in self.info.features}  # not its edits
