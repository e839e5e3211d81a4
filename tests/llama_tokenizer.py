"""Vocabularies in the form of Llama 2's and of Gemma's."""

import json

TEXT = "Rome is a city in Italy. Paris is a city in France. "


def train_tokenizer(folder, add_bos=True, *, doubled=False):
    """As Llama 2's: spaces are pieces' first characters, unknown characters are bytes.

    `doubled` puts a space before a text that has one already, as Llama 2's own file does.
    """
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
    if doubled:
        blank = "\u2581"
        tokenizer.normalizer = tokenizers.normalizers.Sequence(
            [tokenizers.normalizers.Prepend(blank), tokenizers.normalizers.Replace(" ", blank)]
        )
        tokenizer.pre_tokenizer = None
    folder.mkdir(exist_ok=True, parents=True)
    saved = json.loads(tokenizer.to_str())
    saved["added_tokens"] = saved["added_tokens"][:3]  # bytes are pieces like others
    (folder / "tokenizer.json").write_text(json.dumps(saved))
    settings = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "add_bos_token": add_bos}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def train_gemmas(folder, reserved=9, texts=(TEXT,)):
    """As Gemma's: padding is 0, tokens are reserved, a text begins with no space of its own."""
    import tokenizers

    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
    special += [f"<unused{i}>" for i in range(reserved)]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="<unk>"))
    tokenizer.normalizer = tokenizers.normalizers.Replace(" ", "\u2581")
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Split("\u2581", "merged_with_next")
    tokenizer.decoder = tokenizers.decoders.Replace("\u2581", " ")
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300, special_tokens=special, show_progress=False
    )
    tokenizer.train_from_iterator([t.replace(" ", "\u2581") for t in texts] * 9, trainer)
    folder.mkdir(exist_ok=True, parents=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
