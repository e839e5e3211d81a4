"""A random Llama or GPT-2 in Hugging Face's format, with a byte-level BPE of a text's words.

    python -m benchmarks.random_llama --documents old.jsonl --out llama

It needs transformers and torch; the commands of docs/results/update.md begin with such a model.
"""

import argparse
import json

import tokenizers
import torch
import transformers

_BOS, _EOS = "<s>", "</s>"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", required=True, help="JSONL with the field text")
    parser.add_argument("--out", required=True)
    parser.add_argument("--family", choices=("llama", "gpt2"), default="llama")
    parser.add_argument("--vocab-size", type=int, default=4096)
    parser.add_argument("--width", type=int, default=192)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--positions", type=int, default=256)
    args = parser.parse_args()
    levels = tokenizers.pre_tokenizers.ByteLevel
    bpe = tokenizers.Tokenizer(tokenizers.models.BPE())
    bpe.pre_tokenizer = levels(add_prefix_space=False)
    bpe.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=args.vocab_size,
        special_tokens=[_BOS, _EOS],
        initial_alphabet=levels.alphabet(),
        show_progress=False,
    )
    with open(args.documents, encoding="utf-8") as f:
        bpe.train_from_iterator((json.loads(line)["text"] for line in f), trainer)
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=bpe, bos_token=_BOS, eos_token=_EOS
    )
    fast.save_pretrained(args.out)
    torch.manual_seed(0)
    if args.family == "gpt2":
        config = transformers.GPT2Config(
            vocab_size=bpe.get_vocab_size(),
            n_embd=args.width,
            n_layer=args.layers,
            n_head=args.width // 32,
            n_positions=args.positions,
            bos_token_id=0,
            eos_token_id=1,
        )
        transformers.GPT2LMHeadModel(config).save_pretrained(args.out)
        return
    config = transformers.LlamaConfig(
        vocab_size=bpe.get_vocab_size(),
        hidden_size=args.width,
        intermediate_size=8 * args.width // 3,
        num_hidden_layers=args.layers,
        num_attention_heads=args.width // 32,
        num_key_value_heads=max(1, args.width // 96),
        max_position_embeddings=args.positions,
        bos_token_id=0,
        eos_token_id=1,
        tie_word_embeddings=True,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(args.out)


if __name__ == "__main__":
    main()
