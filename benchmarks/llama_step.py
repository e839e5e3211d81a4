"""One training step of a Llama of 100 million parameters, full or LoRA: ours and PyTorch's.

Run it as `python -m benchmarks.llama_step`. PyTorch's is transformers' LlamaForCausalLM with scaled
dot-product attention, for LoRA under PEFT; both with AdamW and a clip of the gradient norm, in
float32, on the same random tokens, without dropout.
"""

import argparse
import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import measure
from benchmarks.contestants import CLIP_NORM, LEARNING_RATE, Ours
from ckl_jax.methods.lora import lora
from ckl_jax.methods.method import vanilla

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
    batch: int = 4
    length: int = 256

    def model(self, **changes: Any) -> Any:
        """Our model of this shape."""
        from ckl_jax.models.decoder import DecoderConfig, Transformer
        from ckl_jax.models.decoder_only import DecoderOnlyModel

        sizes = {k: v for k, v in vars(self).items() if k not in ("batch", "length")}
        config = DecoderConfig(**sizes, max_positions=self.length, **changes)
        return DecoderOnlyModel(Transformer(config))

    def tokens(self) -> dict[str, np.ndarray]:
        """A batch without padding, in the form that our models take."""
        rows = np.random.RandomState(0).randint(2, self.vocab_size, (self.batch, self.length + 1))
        return {
            "decoder_input_tokens": rows[:, :-1].astype(np.int32),
            "decoder_target_tokens": rows[:, 1:].astype(np.int32),
            "decoder_loss_weights": np.ones((self.batch, self.length), np.float32),
        }

    def optimizer(self) -> Any:
        from ckl_jax.optim.adamw import adamw

        return adamw


SHAPES = {
    "100m": LlamaShape(),
    "trial": LlamaShape(
        vocab_size=512, emb_dim=64, num_heads=4, num_kv_heads=2, head_dim=16, mlp_dim=128
    ),
}


def torch_step(shape: LlamaShape, cores: int, adapted: bool) -> Callable[[], float]:
    """The step of transformers' LlamaForCausalLM, with `adapted` under PEFT's LoRA."""
    import torch
    import transformers

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
        use_cache=False,
    )
    model = transformers.LlamaForCausalLM(config)
    if adapted:
        import peft

        settings = peft.LoraConfig(r=RANK, target_modules=list(TARGETS.values()))
        model = peft.get_peft_model(model, settings)
    model.train()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=LEARNING_RATE)
    batch = shape.tokens()
    inputs, labels = (
        torch.from_numpy(batch[f"decoder_{name}_tokens"]).long() for name in ("input", "target")
    )

    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        # `shift_labels`: as given, not shifted once more.
        loss = model(input_ids=inputs, labels=labels, shift_labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, CLIP_NORM)
        optimizer.step()
        return loss.item()

    return step


def run(shape: str, rounds: int, cores: int) -> dict:
    """Measures both updates of both; see `measure.take_turns`."""
    size = SHAPES[shape]
    methods = {"full": vanilla(), "lora": lora(rank=RANK, targets=tuple(TARGETS), trunk=())}
    found = {}
    for name, method in methods.items():
        contestants = {"ours": Ours(size, method), "torch": torch_step(size, cores, name == "lora")}
        found[name] = measure.take_turns(contestants, rounds)
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
    for update in ("full", "lora"):
        for name, entry in result[update].items():
            seconds, ratio = entry["cpu_seconds"], entry["ratio"]
            print(f"{update:5} {name:6} {seconds:8.3f} CPU s  {ratio:6.3f} of torch's")
    print(f"{measure.save(f'llama_step_{args.shape}', result).name} written")


if __name__ == "__main__":
    main()
