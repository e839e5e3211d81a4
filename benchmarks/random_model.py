"""A random Llama, GPT-2 or T5 in Hugging Face's format, with a vocabulary of a text.

    python -m benchmarks.random_model --documents old.jsonl --out llama

It needs transformers and torch; the commands of docs/results/update.md begin with such a model. A
decoder has a byte-level BPE, a T5 (gated, its output tied to the embedding) a SentencePiece model.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import tokenizers
import torch
import transformers

from ckl_jax.data.text import vocabularies

_BOS, _EOS = "<s>", "</s>"
_HEAD = 32  # width of an attention head


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", required=True, help="JSONL with the field text")
    parser.add_argument("--out", required=True)
    parser.add_argument("--family", choices=("llama", "gpt2", "t5"), default="llama")
    parser.add_argument("--vocab-size", type=int, default=4096)
    parser.add_argument("--width", type=int, default=192)
    parser.add_argument("--layers", type=int, default=4, help="of a T5's decoder")
    parser.add_argument("--encoder-layers", type=int, default=2, help="of a T5")
    parser.add_argument("--positions", type=int, default=256, help="of a decoder")
    args = parser.parse_args()
    text = _texts(args.documents)
    if args.family == "t5":
        path = Path(args.out) / "spiece.model"
        tokens = vocabularies.train_vocabulary(text, path, args.vocab_size, 100).vocab_size
    else:
        tokens = _byte_level_bpe(text, args.out, args.vocab_size)
    torch.manual_seed(0)
    model = {"llama": _llama, "gpt2": _gpt2, "t5": _t5}[args.family](args, tokens)
    model.save_pretrained(args.out)
    print(f"{model.num_parameters():,} parameters, {tokens:,} tokens")


def _texts(path: str) -> Iterator[str]:
    with open(path, encoding="utf-8") as f:
        yield from (json.loads(line)["text"] for line in f)


def _byte_level_bpe(text: Iterator[str], out: str, size: int) -> int:
    levels = tokenizers.pre_tokenizers.ByteLevel
    bpe = tokenizers.Tokenizer(tokenizers.models.BPE())
    bpe.pre_tokenizer = levels(add_prefix_space=False)
    bpe.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[_BOS, _EOS],
        initial_alphabet=levels.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(text, trainer)
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=bpe, bos_token=_BOS, eos_token=_EOS
    )
    fast.save_pretrained(out)
    return bpe.get_vocab_size()


def _llama(args: argparse.Namespace, tokens: int) -> transformers.PreTrainedModel:
    config = transformers.LlamaConfig(
        vocab_size=tokens,
        hidden_size=args.width,
        intermediate_size=8 * args.width // 3,
        num_hidden_layers=args.layers,
        num_attention_heads=args.width // _HEAD,
        num_key_value_heads=max(1, args.width // 96),
        max_position_embeddings=args.positions,
        bos_token_id=0,
        eos_token_id=1,
        tie_word_embeddings=True,
    )
    return transformers.LlamaForCausalLM(config)


def _gpt2(args: argparse.Namespace, tokens: int) -> transformers.PreTrainedModel:
    config = transformers.GPT2Config(
        vocab_size=tokens,
        n_embd=args.width,
        n_layer=args.layers,
        n_head=args.width // _HEAD,
        n_positions=args.positions,
        bos_token_id=0,
        eos_token_id=1,
    )
    return transformers.GPT2LMHeadModel(config)


def _t5(args: argparse.Namespace, tokens: int) -> transformers.PreTrainedModel:
    config = transformers.T5Config(
        vocab_size=tokens,
        d_model=args.width,
        d_kv=_HEAD,
        d_ff=4 * args.width,
        num_layers=args.encoder_layers,
        num_decoder_layers=args.layers,
        num_heads=args.width // _HEAD,
        feed_forward_proj="gated-gelu",
        decoder_start_token_id=0,
    )
    return transformers.T5ForConditionalGeneration(config)


if __name__ == "__main__":
    main()
