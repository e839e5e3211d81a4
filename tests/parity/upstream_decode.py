"""Run by `test_upstream_train.py` under upstream T5X: four beams of our module with its decoder.

python upstream_decode.py METHOD SCAN OUT.npz
"""

import dataclasses
import sys

import numpy as np
import seqio
from t5x import models

from ckl_jax import upstream
from tests.helpers import METHODS, TINY, random_batch, random_params


def main(name, scan, out):
    config = dataclasses.replace(TINY, scan_layers=scan == "True")
    module = upstream.transformer(config, METHODS[name])
    vocabulary = seqio.PassThroughVocabulary(config.vocab_size, eos_id=1)
    model = models.EncoderDecoderModel(module, vocabulary, vocabulary, optimizer_def=None)
    batch = random_batch(config)
    tokens, aux = model.predict_batch_with_aux(
        random_params(module.config), batch, num_decodes=4, return_all_decodes=True
    )
    # T5X returns the worst first.
    np.savez(out, tokens=np.asarray(tokens)[:, ::-1], scores=np.asarray(aux["scores"])[:, ::-1])


if __name__ == "__main__":
    main(*sys.argv[1:])
