"""Makes hf_gpt2.npz: what Hugging Face's GPT-2 computes and writes, on random weights.

    python -m tests.parity.golden.make_hf_gpt2

Needs torch and transformers (`pip install -e '.[hf]'`); the versions are stored with the values.
Weights are rounded to float16 first. Decoded sequences are zero after their end.
"""

from pathlib import Path

import numpy as np
import torch
import transformers

SETTINGS = dict(
    vocab_size=64, n_embd=16, n_head=2, n_layer=2, n_positions=24, bos_token_id=63, eos_token_id=63
)
LENGTHS = (3, 7, 5)
EOS, NEW = 63, 8


def make_model():
    torch.manual_seed(0)
    config = transformers.GPT2Config(**SETTINGS, attn_implementation="eager")
    model = transformers.GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for p in model.parameters():
            p += 0.3 * torch.randn_like(p)
            p.copy_(p.half().float())
    return model


def main():
    model, rng = make_model(), np.random.default_rng(0)
    left, mask = np.zeros((3, 7), np.int64), np.zeros((3, 7), np.int64)
    for row, seen, length in zip(left, mask, LENGTHS, strict=True):
        row[-length:], seen[-length:] = rng.integers(0, 63, length), 1
    ids, attention = torch.tensor(left), torch.tensor(mask)
    state = {k: x.numpy() for k, x in model.state_dict().items() if k != "lm_head.weight"}
    found = {f"state/{name}": x.astype(np.float16) for name, x in state.items()}
    found |= {"left": left.astype(np.int8), "mask": mask.astype(np.int8)}
    with torch.no_grad():
        positions = torch.clamp(torch.cumsum(attention, 1) - 1, min=0)
        out = model(ids, attention_mask=attention, position_ids=positions)
        found["logits"] = out.logits.numpy()
        for beams in (1, 3):
            written = model.generate(
                ids,
                attention_mask=attention,
                num_beams=beams,
                do_sample=False,
                max_new_tokens=NEW,
                length_penalty=0.0,
                early_stopping=True,
                pad_token_id=0,
                num_return_sequences=beams,
            )[:, 7:].numpy()
            written = np.pad(written, ((0, 0), (0, NEW - written.shape[1])))
            ended = np.cumsum(written == EOS, axis=1) - (written == EOS) > 0
            found[f"beams_{beams}"] = np.where(ended, 0, written).astype(np.int8)
    versions = f"transformers {transformers.__version__}, torch {torch.__version__}"
    found["provenance"] = np.array(versions)
    np.savez_compressed(Path(__file__).with_name("hf_gpt2.npz"), **found)


if __name__ == "__main__":
    main()
