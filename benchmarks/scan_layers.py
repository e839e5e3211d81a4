"""What compiling a step of Gemma 3 1B takes with its 26 layers looped and scanned; nothing is run.

    python -m benchmarks.scan_layers [LENGTH]

Prints CPU seconds, lines of the program and temporary memory of loss gradients, on a CPU.
"""

import argparse
import time

import jax
import jax.numpy as jnp

from ckl_jax.models.decoder import DecoderConfig, Transformer

ROWS = 2
GEMMA_3_1B = dict(
    vocab_size=262144,
    emb_dim=1152,
    num_heads=4,
    num_kv_heads=1,
    head_dim=256,
    mlp_dim=6912,
    num_layers=26,
    max_positions=32768,
    family="gemma3_text",
    norm_plus_one=True,
    norm_place="both",
    qk_norm="head",
    layer_types=("sliding",) * 5 + ("full",),
    window=512,
    ropes={"full": {"rope_theta": 1e6}, "sliding": {"rope_theta": 1e4}},
    mlp_activations=("gelu", "linear"),
    logits_via_embedding=True,
    dtype="bfloat16",
)


def measured(length: int, scan_layers: bool) -> str:
    """A line of Markdown."""
    module = Transformer(DecoderConfig(**GEMMA_3_1B, scan_layers=scan_layers))
    short = jnp.zeros((1, 8), jnp.int32)
    params = jax.eval_shape(lambda: module.init(jax.random.key(0), short, short))["params"]

    def loss(params, rows):
        logits = module.apply({"params": params}, rows, rows, enable_dropout=False)
        return jnp.mean(jnp.square(logits))

    rows = jax.ShapeDtypeStruct((ROWS, length), jnp.int32)
    begin = time.process_time()
    lowered = jax.jit(jax.grad(loss)).lower(params, rows)
    traced = time.process_time()
    compiled = lowered.compile()
    done = time.process_time()
    sizes = [text.count("\n") for text in (lowered.as_text(), compiled.as_text())]
    temporary = compiled.memory_analysis().temp_size_in_bytes / 2**30
    name = "scanned" if scan_layers else "looped"
    return (
        f"| {name} | {traced - begin:.1f} | {done - traced:.1f} | {sizes[0]:,} | {sizes[1]:,} | "
        f"{temporary:.1f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("length", nargs="?", type=int, default=1024, help="tokens of a row")
    length = parser.parse_args().length
    print("| layers | trace, s | compile, s | StableHLO lines | HLO lines | temporary GiB |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for scan_layers in (False, True):
        print(measured(length, scan_layers), flush=True)


if __name__ == "__main__":
    main()
