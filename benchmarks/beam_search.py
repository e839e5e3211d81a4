"""CPU seconds of beam search of a T5-small beside Hugging Face's, in one run.

    python -m benchmarks.beam_search        # needs torch and transformers

Both have random weights and 8 inputs of 64 tokens, and decode 64 tokens: nothing ends a sequence.
"""

import argparse
import dataclasses
import functools
import time

import jax
import numpy as np

from ckl_jax.models import decoding
from ckl_jax.models.encoder_decoder import EncoderDecoderModel
from ckl_jax.models.t5 import T5Config, Transformer

ROWS, INPUT, LENGTH, VOCABULARY = 8, 64, 64, 32128


@dataclasses.dataclass(frozen=True)
class _Vocabulary:
    """What a model asks of its vocabulary."""

    eos_id: int = -1  # none
    vocab_size: int = VOCABULARY


def ours(beams: int):
    config = T5Config(vocab_size=VOCABULARY, dropout_rate=0.0, logits_via_embedding=True)
    search = decoding.beam_search if beams > 1 else decoding.greedy_decode
    model = EncoderDecoderModel(Transformer(config), _Vocabulary(), _Vocabulary(), decode_fn=search)
    params = model.init(jax.random.key(0))["params"]
    inputs = jax.random.randint(jax.random.key(1), (ROWS, INPUT), 2, 32000)
    more = {"beam_size": beams} if beams > 1 else {}
    predict = jax.jit(functools.partial(model.predict, max_decode_length=LENGTH, **more))

    def run() -> None:
        assert np.asarray(predict(params, inputs).tokens).shape[-1] == LENGTH

    return run


def theirs(beams: int):
    import torch
    from transformers import T5Config as Config
    from transformers import T5ForConditionalGeneration

    torch.manual_seed(0)
    sizes = dict(vocab_size=VOCABULARY, d_model=512, num_heads=8, d_kv=64, d_ff=2048, num_layers=6)
    model = T5ForConditionalGeneration(Config(**sizes, decoder_start_token_id=0)).eval()
    inputs = torch.randint(2, 32000, (ROWS, INPUT))
    lengths = {"min_length": LENGTH + 1, "max_length": LENGTH + 1}

    def run() -> None:
        with torch.no_grad():
            found = model.generate(input_ids=inputs, num_beams=beams, do_sample=False, **lengths)
        assert found.shape == (ROWS, LENGTH + 1)

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    for beams in (1, 4):
        sides = {"ckl_jax": ours(beams), "transformers": theirs(beams)}
        spent: dict[str, list[float]] = {name: [] for name in sides}
        for run in sides.values():
            run()  # compiles, and warms up
        for _ in range(repeats):
            for name, run in sides.items():
                start = time.process_time()
                run()
                spent[name].append(time.process_time() - start)
        least = {name: min(seconds) for name, seconds in spent.items()}
        ratio = least["ckl_jax"] / least["transformers"]
        print(f"{beams} beams: {least}, ratio {ratio:.2f}", flush=True)


if __name__ == "__main__":
    main()
