"""GPT-2's byte-level BPE vocabularies, and any other vocabulary in a `tokenizer.json`.

They are read by Hugging Face's `tokenizers` (which needs no torch) and have the interface of
`vocabularies.Vocabulary`. Of GPT-2's, any text has ids and none is unknown; id 0 is a token like
any other ("!"), so padding is known by lengths, not by its id.
"""

import contextlib
import hashlib
import itertools
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from os.path import lexists
from pathlib import Path
from typing import Any

from ckl_jax import checks
from ckl_jax.data.text.vocabularies import EOS_ID, EXTRA_IDS, PAD_ID, Vocabulary, require_sentinel
from ckl_jax.errors import UserError, if_missing
from ckl_jax.files import ANY_NUMBER, os_errors, parse_json, read_json_object

END = "<|endoftext|>"
# What TemporalWiki's code added to GPT-2: ids 50257 to 50261.
TEMPORALWIKI_TOKENS = ("</s>", "<s>", "<unk>", "<pad>", "<mask>")
# The two files of a vocabulary, by Hugging Face's names and by OpenAI's.
_PAIRS = (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"))
_WHOLE, _CONFIG, _GENERATION = "tokenizer.json", "tokenizer_config.json", "generation_config.json"
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")  # a token that is one byte
_SPACE = "\u2581"  # how SentencePiece writes a space


def _characters_of_bytes() -> dict[str, int]:
    """GPT-2's spelling of bytes: printable ones are themselves, others map to 256 and up."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    return {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}


_BYTES = _characters_of_bytes()


class ByteLevelVocabulary:
    """The tokens of one byte-level BPE.

    Attributes:
      path: what it was made from.
      vocab_size: all ids, added tokens included.
      eos_id: of "</s>" where it was added, else of the eos_token of tokenizer_config.json, or of
        "</s>" or "<|endoftext|>".
      bos_id: of "<|endoftext|>", or of "<s>" where that is missing.
      pad_id: of "<pad>" where it was added, else `eos_id`.
      digest: SHA-256 (hex) over tokens, merges and added tokens; equal digests give equal ids.
    """

    extra_ids = 0

    def __init__(self, path: str | os.PathLike, added_tokens: Sequence[str] = ()):
        """Loads a vocabulary.

        Args:
          path: `tokenizer.json`, or a folder with it, or a folder with `vocab.json` and
            `merges.txt` (`encoder.json` and `vocab.bpe` do too).
          added_tokens: further special tokens; they get the ids behind the model's, in order.

        Raises:
          UserError: the files are missing or malformed, or `tokenizers` is not installed.
        """
        self.path, self.added_tokens = os.fspath(path), tuple(added_tokens)
        self.tokenizer, self.files = load_tokenizer(Path(path))
        self.tokenizer.add_special_tokens(list(self.added_tokens))
        self.vocab_size: int = self.tokenizer.get_vocab_size()
        self.files += settings_beside(self.files[0])
        end = None if "</s>" in self.added_tokens else _end_of(self.files[0].parent)
        self.eos_id = self._id(*filter(None, (end, "</s>", END)))
        self.bos_id = self._id(END, "<s>", "</s>")
        pad = self.tokenizer.token_to_id("<pad>")
        self.pad_id = self.eos_id if pad is None else pad
        self.digest = digest_of_tokenizer(self.tokenizer)

    def _id(self, *names: str) -> int:
        ids = (self.tokenizer.token_to_id(name) for name in names)
        id = next((i for i in ids if i is not None), None)
        if id is None:
            raise UserError(
                f"{self.path} has no {names[-1]!r}, which ends a text; give GPT-2's vocabulary, or "
                f"added_tokens=({names[-1]!r},)."
            )
        return id

    def __reduce__(self):
        return type(self), (self.path, self.added_tokens)

    def __repr__(self) -> str:
        return f"ByteLevelVocabulary({self.path!r})"

    def encode(self, text: str) -> list[int]:
        """Returns the ids of `text`, without an end."""
        with tokenizing(self.path):
            return self.tokenizer.encode(text, add_special_tokens=False).ids

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns `encode` of each of `texts`, faster than one at a time."""
        with tokenizing(self.path):
            encodings = self.tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """Returns [start, end) in characters of each of the ids of `text`."""
        with tokenizing(self.path):
            return self.tokenizer.encode(text, add_special_tokens=False).offsets

    def locate(self, ids: Iterable[int]) -> tuple[str, list[tuple[int, int]]]:
        """Returns the text that `ids` stand for, and [start, end) in characters of each of them.

        A character that several ids share is in the span of each; bytes that are not whole
        character, as at the ends of a row, are one character (a lone surrogate) each.
        """
        parts = [bytes(map(_BYTES.__getitem__, piece)) for piece in self.pieces(ids)]
        return characters_of(parts)

    def decode(self, ids: Iterable[int], skip_special: bool = True) -> str:
        """Returns the text of `ids` up to the first end; ids outside the vocabulary are skipped."""
        before_end = itertools.takewhile(lambda i: i != self.eos_id, map(int, ids))
        kept = [i for i in before_end if 0 <= i < self.vocab_size]
        with tokenizing(self.path):
            return self.tokenizer.decode(kept, skip_special_tokens=skip_special)

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Returns the token of each id."""
        return [self.tokenizer.id_to_token(int(i)) for i in ids]


class TokenizerVocabulary(ByteLevelVocabulary):
    """The tokens of one `tokenizer.json` of any kind, or of a byte-level BPE's two files.

    Tokens that begin or end a text are those that `tokenizer_config.json` beside it names, or else
    `generation_config.json`.

    Attributes:
      bos_id: of the token that begins a text; None where the family has none (Qwen).
      eos_id: of the token that ends one.
      pad_id: of the token of padding; `eos_id` where there is none.
      around: the ids that the family puts before and after every text.
    """

    def __init__(self, path: str | os.PathLike):
        """Loads a vocabulary.

        Args:
          path: `tokenizer.json`, or the folder with it and `tokenizer_config.json`; `vocab.json`
            and `merges.txt` do too.

        Raises:
          UserError: a file is missing or malformed, nothing ends a text, or `tokenizers` is not
            installed.
        """
        self.path, self.added_tokens = os.fspath(path), ()
        self.tokenizer, self.files = self._load(Path(path))
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        self.vocab_size = self.tokenizer.get_vocab_size()
        self._is_byte_level = _is_byte_level(self.tokenizer)
        folder = Path(self.files[0]).parent
        names, ids = (_settings(folder / name) for name in (_CONFIG, _GENERATION))
        self.files += settings_beside(self.files[0])
        self.bos_id, self.eos_id, self.pad_id = (
            self._special(names, ids, kind) for kind in ("bos", "eos", "pad")
        )
        if self.eos_id is None:
            raise UserError(
                f"{self.path} does not say which token ends a text: name it as eos_token of "
                "tokenizer_config.json beside it."
            )
        if self.pad_id is None:
            self.pad_id = self.eos_id
        self.around = self._template(names)
        self.digest = digest_of_tokenizer(self.tokenizer)

    def _load(self, path: Path) -> tuple[Any, list[Path]]:
        return load_tokenizer(path)

    def _template(self, names: dict[str, Any]) -> tuple[list[int], list[int]]:
        with tokenizing(self.path):
            whole, bare = (
                self.tokenizer.encode("a", add_special_tokens=flag).ids for flag in (True, False)
            )
        start = next((i for i in range(len(whole)) if whole[i : i + len(bare)] == bare), len(whole))
        around = [whole[:start], whole[start + len(bare) :]]
        # Where tokenizer.json has no template, transformers 4 makes one of these settings.
        for i, (name, token) in enumerate((("bos", self.bos_id), ("eos", self.eos_id))):
            if (adds := names.get(f"add_{name}_token")) is not None:
                checks.require_bool(**{f"{self.path}: add_{name}_token of {_CONFIG}": adds})
                if self.tokenizer.post_processor is None:
                    around[i] = [token] if adds and token is not None else []
        return around[0], around[1]

    def _special(self, names: dict[str, Any], ids: dict[str, Any], kind: str) -> int | None:
        """The id of a special token by its name in one file, or by its number in the other."""
        if f"{kind}_token" in names:
            token = names[f"{kind}_token"]
            token = (token.get("content") or token) if isinstance(token, dict) else token
            if not isinstance(token, str | None):
                raise UserError(
                    f"{self.path}: {kind}_token of {_CONFIG} is {token!r}; give the token, a text."
                )
            token_id = None if token is None else self.tokenizer.token_to_id(token)
            # What pads is masked: without it the end of a text does as well.
            if token is not None and token_id is None and kind != "pad":
                raise UserError(
                    f"{self.path}: {kind}_token of {_CONFIG} is {token!r}, which is none of the "
                    f"tokens; give one of them{', or null if there is none' * (kind == 'bos')}."
                )
            return token_id
        given = ids.get(f"{kind}_token_id")
        first = given[0] if isinstance(given, list) and given else given
        checks.require_int(-1, **{f"{self.path}: {kind}_token_id of {_GENERATION}": first})
        return first if first is not None and 0 <= first < self.vocab_size else None

    def __reduce__(self):
        return type(self), (self.path,)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path!r})"

    def locate(self, ids: Iterable[int]) -> tuple[str, list[tuple[int, int]]]:
        """Returns the text that `ids` stand for, and [start, end) in characters of each of them."""
        if self._is_byte_level:
            return super().locate(ids)
        parts = [
            bytes([int(m[1], 16)])
            if (m := _BYTE.fullmatch(piece))
            else piece.replace(_SPACE, " ").encode()
            for piece in self.pieces(ids)
        ]
        return characters_of(parts)


class SpanVocabulary(TokenizerVocabulary):
    """A `tokenizer.json` with sentinels, for encoder-decoders.

    `<extra_id_i>` is the token `<unused{i}>` that Gemma's reserve, as many as there are. Where
    there is none, 100 are added behind the others, `<extra_id_0>` the last, as to a SentencePiece
    model. As T5's, a sentinel swallows the space before it, padding is 0 and the end 1.

    Attributes:
      extra_ids: the number of sentinels.
    """

    def __init__(self, path: str | os.PathLike):
        """See `TokenizerVocabulary`; also raises `UserError` for padding or an end of other ids."""
        super().__init__(path)
        if (self.pad_id, self.eos_id) != (PAD_ID, EOS_ID):
            raise UserError(
                f"{self.path} has padding and end of a text at ids {self.pad_id} and {self.eos_id} "
                f"where an encoder-decoder has {PAD_ID} and {EOS_ID}; give a tokenizer as Gemma's."
            )

    def _load(self, path: Path) -> tuple[Any, list[Path]]:
        tokenizer, files = load_tokenizer(path)
        from tokenizers import AddedToken, Tokenizer

        # By the name that texts have, so that offsets and pieces are those of texts.
        renamed = re.sub(r'"<unused(\d+)>"', r'"<extra_id_\1>"', tokenizer.to_str())
        tokenizer, tokens = Tokenizer.from_str(renamed), []
        while tokenizer.token_to_id(token := f"<extra_id_{len(tokens)}>") is not None:
            tokens.append(token)
        tokens = tokens or [f"<extra_id_{i}>" for i in reversed(range(EXTRA_IDS))]
        self.extra_ids = len(tokens)
        tokenizer.add_special_tokens([AddedToken(t, lstrip=True, normalized=False) for t in tokens])
        return tokenizer, files

    def sentinel(self, i: int) -> int:
        """Returns the id of `<extra_id_i>`; see `vocabularies.require_sentinel`."""
        require_sentinel(self, i)
        return self.tokenizer.token_to_id(f"<extra_id_{i}>")


def _settings(path: Path) -> dict[str, Any]:
    return read_json_object(path) if lexists(path) else {}


def settings_beside(file: Path) -> list[Path]:
    """The files of a tokenizer's settings that lie beside one of its own."""
    return [file.parent / n for n in (_CONFIG, _GENERATION) if lexists(file.parent / n)]


def _end_of(folder: Path) -> str | None:
    """The token that ends a text, where a folder's settings say so."""
    end = _settings(folder / _CONFIG).get("eos_token")
    end = end.get("content") if isinstance(end, dict) else end
    return end if isinstance(end, str) else None


def _is_byte_level(tokenizer: Any) -> bool:
    return "ByteLevel" in str(parse_json(tokenizer.to_str(), ANY_NUMBER).get("decoder"))


def _is_gpt2s(path: Path) -> bool:
    """Whether a folder's tokenizer ends texts as GPT-2's does, so that it needs no settings."""
    tokenizer, files = load_tokenizer(path)
    end = _end_of(files[0].parent)
    known = tokenizer.token_to_id(END) is not None and end in (END, "</s>", None)
    is_bare = known and not tokenizer.encode("").ids  # a template adds tokens around a text
    adds = _settings(files[0].parent / _CONFIG).get("add_bos_token")  # as OPT's
    return (len(files) > 1 and not adds) or (is_bare and _is_byte_level(tokenizer))


def characters_of(parts: Sequence[bytes]) -> tuple[str, list[tuple[int, int]]]:
    """The text of byte strings, and [start, end) in characters of each; see `locate`."""
    text = b"".join(parts).decode("utf-8", "surrogateescape")
    owner = [  # of each byte, the character that it is (a part of)
        i for i, c in enumerate(text) for _ in c.encode("utf-8", "surrogateescape")
    ]
    ends = list(itertools.accumulate(map(len, parts)))
    starts = [0, *ends][: len(ends)]
    return text, [
        (owner[a], owner[b - 1] + 1) if a < b else (0, 0) for a, b in zip(starts, ends, strict=True)
    ]


def open_vocabulary(path: str | os.PathLike) -> Vocabulary | ByteLevelVocabulary:
    """A vocabulary by its files: a folder or `.json` is `tokenizers`', all else SentencePiece."""
    if not (Path(path).is_dir() or os.fspath(path).endswith(".json")):
        return Vocabulary(path)
    tokenizer, files = load_tokenizer(Path(path))
    if tokenizer.token_to_id("<extra_id_0>") is not None:
        return Vocabulary(files[0])
    return ByteLevelVocabulary(path) if _is_gpt2s(Path(path)) else TokenizerVocabulary(path)


def is_byte_level(folder: str | os.PathLike) -> bool:
    """Whether a folder holds the files of such a vocabulary."""
    names = [(_WHOLE,), *_PAIRS]
    return any(all(lexists(Path(folder) / name) for name in some) for some in names)


@contextlib.contextmanager
def tokenizing(path: str | os.PathLike) -> Iterator[None]:
    """Makes a failure of `tokenizers` in the block, over its files or a text, a `UserError`."""
    try:
        yield
    except BaseException as e:
        # It raises bare exceptions; what its Rust code panics at is not even an `Exception`.
        if type(e) is not Exception and type(e).__name__ != "PanicException":
            raise
        reason = str(e).split("\n")[0]
        raise UserError(f"The tokenizer of {path} fails ({reason}); check its files.") from e


def load_tokenizer(path: Path) -> tuple[Any, list[Path]]:
    """A tokenizer by its files, see `ByteLevelVocabulary`, and the files."""
    with if_missing("This vocabulary needs the package 'tokenizers': pip install 'ckl-jax[gpt2]'."):
        from tokenizers import Tokenizer
    folder = path if path.is_dir() else path.parent
    given = folder != path and lexists(path) and path.name not in dict(_PAIRS)
    whole = path if given else folder / _WHOLE
    # What is there and cannot be read is not taken for absent.
    if lexists(whole):
        files = [whole]
    else:
        pairs = ([folder / a, folder / b] for a, b in _PAIRS)
        files = next((pair for pair in pairs if all(map(lexists, pair))), [])
    if not files:
        sentencepiece = folder / "spiece.model"
        or_file = f", or {sentencepiece} itself" if sentencepiece.exists() else ""
        raise UserError(
            f"There is no vocabulary in {path}: give the folder of tokenizer.json, or of "
            f"vocab.json and merges.txt{or_file}."
        )
    with os_errors(files[0], "read"), os_errors(files[-1], "read"):
        try:
            if len(files) == 1:
                return Tokenizer.from_file(str(files[0])), files
            return _from_pair(*files), files
        except OSError:
            raise
        except BaseException as e:  # see `tokenizing`
            if not isinstance(e, Exception) and type(e).__name__ != "PanicException":
                raise
            named = " with ".join(map(str, files))
            raise UserError(f"{named} cannot be read as a vocabulary: {e}.") from e


def _from_pair(vocab: Path, merges: Path) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    tokenizer = Tokenizer(models.BPE.from_file(str(vocab), str(merges)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = (END, "<s>", "</s>", "<pad>", "<unk>")
    tokenizer.add_special_tokens([t for t in special if tokenizer.token_to_id(t) is not None])
    return tokenizer


def digest_of_tokenizer(tokenizer: Any) -> str:
    """SHA-256 (hex) over tokens and merges."""
    merges = parse_json(tokenizer.to_str(), ANY_NUMBER)["model"].get("merges")
    parts = (sorted(tokenizer.get_vocab().items()), merges)
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def begins_with(vocabulary: Any) -> list[int]:
    """The ids that the family puts before every text, such as Llama's `<s>`; GPT-2 has none."""
    return list(getattr(vocabulary, "around", ((), ()))[0])


def unused_ids(vocabulary: Any) -> int:
    """How many of the last ids are special tokens of no text, as Gemma 3's of images."""
    if not isinstance(vocabulary, ByteLevelVocabulary) or vocabulary.extra_ids:
        return 0
    used = {getattr(vocabulary, f"{kind}_id", None) for kind in ("bos", "eos", "pad", "mask")}
    used.update(*getattr(vocabulary, "around", ()))
    added = vocabulary.tokenizer.get_added_tokens_decoder()
    special = {id for id, token in added.items() if token.special} - used
    ids = reversed(range(vocabulary.vocab_size))
    return sum(1 for _ in itertools.takewhile(special.__contains__, ids))
