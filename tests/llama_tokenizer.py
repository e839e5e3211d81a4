"""A vocabulary in the form of Llama 2's."""

import json

TEXT = "Rome is a city in Italy. Paris is a city in France. "


def train_tokenizer(folder, add_bos=True):
    """As Llama 2's: spaces are pieces' first characters, unknown characters are bytes."""
    import tokenizers

    fallback = [f"<0x{i:02X}>" for i in range(256)]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(byte_fallback=True, unk_token="<unk>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    tokenizer.decoder = tokenizers.decoders.Sequence(
        [
            tokenizers.decoders.Replace("\u2581", " "),
            tokenizers.decoders.ByteFallback(),
            tokenizers.decoders.Fuse(),
            tokenizers.decoders.Strip(" ", 1, 0),
        ]
    )
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<unk>", "<s>", "</s>", *fallback], show_progress=False
    )
    tokenizer.train_from_iterator([TEXT] * 9, trainer)
    folder.mkdir(exist_ok=True, parents=True)
    saved = json.loads(tokenizer.to_str())
    saved["added_tokens"] = saved["added_tokens"][:3]  # bytes are pieces like others
    (folder / "tokenizer.json").write_text(json.dumps(saved))
    settings = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "add_bos_token": add_bos}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
