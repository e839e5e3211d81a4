"""One training step of a Llama of 100 million parameters, full or LoRA: ours and PyTorch's.

Run it as `python -m benchmarks.llama_step`. PyTorch's is transformers' LlamaForCausalLM with scaled
dot-product attention, for LoRA under PEFT; both with AdamW and a clip of the gradient norm, in
float32, on the same random tokens, without dropout. They take turns in processes of their own.
"""

import argparse
import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import measure
from benchmarks.contestants import LEARNING_RATE, Ours, torch_training
from ckl_jax.methods.lora import lora
from ckl_jax.methods.method import Method, vanilla

RANK = 8
TARGETS = {"query": "q_proj", "value": "v_proj"}


@dataclasses.dataclass(frozen=True)
class LlamaShape:
    """A Llama and its batch."""

    vocab_size: int = 32000
    emb_dim: int = 768
    num_heads: int = 12
    num_kv_heads: int = 4
    head_dim: int = 64
    mlp_dim: int = 2048
    num_layers: int = 8
    logits_via_embedding: bool = False
    batch: int = 4
    length: int = 256
    examples: int = 1  # packed into a row

    def model(self, **changes: Any) -> Any:
        """Our model of this shape."""
        from ckl_jax.models.decoder import DecoderConfig, Transformer
        from ckl_jax.models.decoder_only import DecoderOnlyModel

        sizes = {k: v for k, v in vars(self).items() if k not in ("batch", "length", "examples")}
        config = DecoderConfig(**sizes, max_positions=self.length, **changes)
        return DecoderOnlyModel(Transformer(config))

    def tokens(self) -> dict[str, np.ndarray]:
        """A batch without padding, in the form that our models take; rows may be packed."""
        rows = np.random.RandomState(0).randint(2, self.vocab_size, (self.batch, self.length + 1))
        batch = {
            "decoder_input_tokens": rows[:, :-1].astype(np.int32),
            "decoder_target_tokens": rows[:, 1:].astype(np.int32),
            "decoder_loss_weights": np.ones((self.batch, self.length), np.float32),
        }
        if self.examples > 1:
            which, position = np.divmod(np.arange(self.length), self.length // self.examples)
            for name, row in (("segment_ids", which + 1), ("positions", position)):
                batch[f"decoder_{name}"] = np.tile(row.astype(np.int32), (self.batch, 1))
        return batch

    def optimizer(self) -> Any:
        from ckl_jax.optim.adamw import adamw

        return adamw

    def matmul_flops(self) -> int:
        """As `contestants.Shape.matmul_flops`: attention counts the whole [T, T] square."""
        d, width, length = self.emb_dim, self.num_heads * self.head_dim, self.length
        kv = self.num_kv_heads * self.head_dim
        per_token = self.num_layers * (2 * d * (width + kv) + 3 * d * self.mlp_dim)
        per_token += d * self.vocab_size + self.num_layers * 2 * length * width
        return 6 * self.batch * length * per_token


SHAPES = {
    "100m": LlamaShape(),
    "trial": LlamaShape(
        vocab_size=512, emb_dim=64, num_heads=4, num_kv_heads=2, head_dim=16, mlp_dim=128
    ),
}


def torch_step(
    shape: LlamaShape, cores: int, adapted: bool, device: str = "cpu", bfloat16: bool = False
) -> Callable[[], Any]:
    """The step of transformers' LlamaForCausalLM, with `adapted` under PEFT's LoRA.

    See `contestants.torch_training`.
    """
    import torch
    import transformers
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer

    torch.set_num_threads(cores)
    config = transformers.LlamaConfig(
        vocab_size=shape.vocab_size,
        hidden_size=shape.emb_dim,
        intermediate_size=shape.mlp_dim,
        num_hidden_layers=shape.num_layers,
        num_attention_heads=shape.num_heads,
        num_key_value_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=shape.length,
        tie_word_embeddings=shape.logits_via_embedding,
        use_cache=False,
    )
    with torch.device(device):  # where its weights are drawn, too
        model = transformers.LlamaForCausalLM(config).train()
    if adapted:
        import peft

        settings = peft.LoraConfig(r=RANK, target_modules=list(TARGETS.values()))
        model = peft.get_peft_model(model, settings)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=LEARNING_RATE, fused=device == "cuda")
    layers = [m for m in model.modules() if isinstance(m, LlamaDecoderLayer)]
    return torch_training(model, layers, optimizer, shape.tokens(), device, bfloat16)


def methods() -> dict[str, Method]:
    """The updates that are compared, by name."""
    return {"vanilla": vanilla(), "lora": lora(rank=RANK, targets=tuple(TARGETS), trunk=())}


def _ours(shape: LlamaShape, update: str) -> Ours:
    return Ours(shape, methods()[update])


def run(shape: str, rounds: int, cores: int) -> dict:
    """Measures both updates of both; see `measure.take_turns_apart`."""
    size = SHAPES[shape]
    found = {}
    for name in methods():
        makers = {
            "ours": functools.partial(_ours, size, name),
            "torch": functools.partial(torch_step, size, cores, name == "lora"),
        }
        found[name] = measure.take_turns_apart(makers, rounds)
        measure.add_ratios(found[name], "torch")
    return {"shape": vars(size) | {"name": shape}, "machine": measure.machine(cores)} | found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shape", choices=SHAPES, default="100m")
    parser.add_argument("--steps", type=int, default=5, help="rounds that count")
    parser.add_argument("--cores", type=int, default=1)
    args = parser.parse_args()
    measure.use_cores(args.cores)
    result = run(args.shape, args.steps, args.cores)
    for update in methods():
        for name, entry in result[update].items():
            seconds, ratio = entry["cpu_seconds"], entry["ratio"]
            print(f"{update:7} {name:6} {seconds:8.3f} CPU s  {ratio:6.3f} of torch's")
    print(f"{measure.save(f'llama_step_{args.shape}', result).name} written")


if __name__ == "__main__":
    main()
