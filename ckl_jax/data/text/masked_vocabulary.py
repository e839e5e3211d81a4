"""Vocabularies of masked language models, by Hugging Face's `tokenizers` (which needs no torch).

BERT's WordPiece (`tokenizer.json`, or `vocab.txt`) and RoBERTa's byte-level BPE (`tokenizer.json`,
or `vocab.json` and `merges.txt`).
"""

import os
from collections.abc import Iterable, Sequence
from os.path import lexists
from pathlib import Path
from typing import Any, NamedTuple

from ckl_jax.data.text import byte_level
from ckl_jax.data.text.byte_vocabulary import ByteVocabulary, is_byte_vocabulary
from ckl_jax.errors import UserError, if_missing
from ckl_jax.files import read_json_object, read_text, write_file

_WORDS = "vocab.txt"
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_ROBERTA = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")  # its pair of files does not mark them


class Encoded(NamedTuple):
    """The ids of a text, without special tokens."""

    ids: list[int]  # of the tokens
    # the number of the word that each token is of, as the pre-tokenizer splits them
    words: list[int]
    offsets: list[tuple[int, int]]  # [start, end) in characters of each token


class MaskedVocabulary(byte_level.ByteLevelVocabulary):
    """The tokens of BERT or RoBERTa; see `ByteLevelVocabulary` for what is the same.

    Attributes:
      bos_id, eos_id: what begins and ends a text: [CLS] and [SEP], or <s> and </s>.
      mask_id, pad_id: [MASK] and [PAD], or <mask> and <pad>.
      unk_id: [UNK] or <unk>, what stands for a word that has no tokens.
    """

    def __init__(self, path: str | os.PathLike):
        """Loads a vocabulary.

        Args:
          path: `tokenizer.json`, or a folder with it, with `vocab.txt`, or with `vocab.json` and
            `merges.txt`.

        Raises:
          UserError: the files are missing or malformed, there is no mask among the tokens, or
            `tokenizers` is not installed.
        """
        self.path, self.added_tokens = os.fspath(path), ()
        self.tokenizer, files = _load(Path(path))
        self.files = [*files, *byte_level.settings_beside(Path(files[0]))]
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        self.vocab_size = self.tokenizer.get_vocab_size()
        self.bos_id = self._special("[CLS]", "<s>")
        self.eos_id = self._special("[SEP]", "</s>")
        self.pad_id = self._special("[PAD]", "<pad>")
        self.mask_id = self._special("[MASK]", "<mask>")
        self.unk_id = self._special("[UNK]", "<unk>")
        self.digest = byte_level.digest_of_tokenizer(self.tokenizer)

    def _special(self, *names: str) -> int:
        for name in names:
            if (id := self.tokenizer.token_to_id(name)) is not None:
                return id
        raise UserError(
            f"{self.path} has no token {' or '.join(map(repr, names))}: it is not a vocabulary of "
            "a masked language model such as BERT."
        )

    @property
    def around(self) -> tuple[list[int], list[int]]:
        """The special tokens before and after a text."""
        return [self.bos_id], [self.eos_id]

    def __reduce__(self):
        return type(self), (self.path,)

    def __repr__(self) -> str:
        return f"MaskedVocabulary({self.path!r})"

    def encode_words(self, texts: Sequence[str]) -> list[Encoded]:
        """Returns ids, words and places of each text."""
        with byte_level.tokenizing(self.path):
            encodings = self.tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return [Encoded(e.ids, e.word_ids, e.offsets) for e in encodings]


def is_masked_vocabulary(folder: str | os.PathLike) -> bool:
    """Whether a folder holds the files of such a vocabulary."""
    names = ("tokenizer.json", _WORDS, "merges.txt")
    return any(lexists(Path(folder) / name) for name in names)


def train_word_pieces(
    lines: Iterable[str], folder: str | os.PathLike, size: int
) -> MaskedVocabulary:
    """Trains BERT's kind of vocabulary, cased, and writes its `tokenizer.json`.

    The same lines give the same bytes: the trainer numbers the characters within words in the order
    of a hash that is another in each process, and settles ties by these numbers, so it is given
    them in a fixed order.

    Args:
      size: maximum number of tokens, special ones included.
    """
    lines = list(lines)
    trained = _tokenizer({}, {"do_lower_case": False})
    texts = map(trained.normalizer.normalize_str, lines)
    words = (word for t in texts for word, _ in trained.pre_tokenizer.pre_tokenize_str(t))
    within = sorted({f"##{character}" for word in words for character in word[1:]})
    trainer = _import().trainers.WordPieceTrainer(
        vocab_size=size, special_tokens=[*_SPECIAL, *within], show_progress=False
    )
    trained.train_from_iterator(lines, trainer)
    tokenizer = _tokenizer(trained.get_vocab(), {"do_lower_case": False})
    write_file(Path(folder) / "tokenizer.json", tokenizer.to_str())
    return MaskedVocabulary(folder)


def open_vocabulary(path: str | os.PathLike) -> Any:
    """A vocabulary by its files: BERT's or RoBERTa's, a decoder's, or a SentencePiece model.

    TemporalWiki's GPT-2 has tokens by RoBERTa's names, but behind its pieces.
    """
    if is_byte_vocabulary(path):
        return ByteVocabulary(path)
    if Path(path).is_dir() or Path(path).suffix in (".json", ".txt"):
        tokenizer, _ = _load(Path(path))
        mask = any(tokenizer.token_to_id(name) is not None for name in ("[MASK]", "<mask>"))
        if mask and (tokenizer.token_to_id("<s>") or 0) == 0:
            return MaskedVocabulary(path)
    return byte_level.open_vocabulary(path)


def _load(path: Path) -> tuple[Any, list[Path]]:
    words = path if path.name == _WORDS else path / _WORDS
    if lexists(words) and not lexists(path / "tokenizer.json"):
        return _word_pieces(words), [words]
    tokenizer, files = byte_level.load_tokenizer(path)
    if len(files) > 1:
        tokenizer.add_special_tokens([t for t in _ROBERTA if tokenizer.token_to_id(t) is not None])
    return tokenizer, files


def _word_pieces(path: Path) -> Any:
    """BERT's tokenizer from its list of tokens; `tokenizer_config.json` says if it lowers case."""
    settings = {}
    if lexists(beside := path.with_name("tokenizer_config.json")):
        settings = read_json_object(beside)
    pieces = read_text(path).splitlines()
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    return _tokenizer(vocabulary, settings)


def _tokenizer(vocabulary: dict[str, int], settings: dict[str, Any]) -> Any:
    """A WordPiece tokenizer as BERT's; the settings are of `tokenizer_config.json`."""
    tokenizers = _import()
    model = tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = tokenizers.decoders.WordPiece()
    tokenizer.normalizer = _normalizer(settings)
    tokenizer.add_special_tokens([t for t in _SPECIAL if t in vocabulary])
    return tokenizer


def _normalizer(settings: dict[str, Any]) -> Any:
    return _import().normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
        strip_accents=settings.get("strip_accents"),
        lowercase=settings.get("do_lower_case", True),
    )


def _import() -> Any:
    with if_missing(
        "BERT's vocabulary needs the package 'tokenizers': pip install 'ckl-jax[gpt2]'."
    ):
        import tokenizers
    return tokenizers
