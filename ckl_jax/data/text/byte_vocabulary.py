"""ByT5's vocabulary: the bytes of UTF-8 (Xue et al. 2022, arXiv:2105.13626).

It has the interface of `vocabularies.Vocabulary`. Id 3 + b is byte b, behind padding, end and
unknown; sentinels follow. There is no file of it: `tokenizer_config.json` says that it is this one.
"""

import hashlib
import itertools
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from ckl_jax import checks
from ckl_jax.data.text.byte_level import characters_of
from ckl_jax.data.text.vocabularies import EOS_ID, PAD_ID, UNK_ID, require_sentinel
from ckl_jax.errors import UserError
from ckl_jax.files import read_json_object

CONFIG = "tokenizer_config.json"
_CLASS = "ByT5Tokenizer"
_EXTRA_IDS = 125
_SENTINEL = re.compile(r"<extra_id_(0|[1-9]\d*)>")
_FIRST_BYTE, _BYTES = 3, 256
_UNUSED_BYTES = 11  # 0xF5 to 0xFF are in no UTF-8


class ByteVocabulary:
    """Bytes and sentinels.

    Attributes:
      path: the folder, or the file in it.
      vocab_size: all ids, sentinels included.
      extra_ids: the number of sentinels.
      digest: SHA-256 (hex); equal digests give equal ids.
    """

    pad_id, eos_id, unk_id, bos_id = PAD_ID, EOS_ID, UNK_ID, None

    def __init__(self, path: str | os.PathLike, pretrained_sentinels: bool = False):
        """Reads how many sentinels there are.

        Args:
          path: `tokenizer_config.json` of a ByT5, or its folder.
          pretrained_sentinels: `<extra_id_i>` is 258 - i, the id of a byte that no text holds,
            which stood for span i in ByT5's pretraining; there are 11. Without it the id is 259 + i
            as in transformers' tokenizer, whose embedding no pretraining has trained.

        Raises:
          UserError: the file is missing, or of another tokenizer.
        """
        checks.require_bool(pretrained_sentinels=pretrained_sentinels)
        self.path, self._pretrained = os.fspath(path), pretrained_sentinels
        file = Path(path) / CONFIG if Path(path).is_dir() else Path(path)
        settings, self.files = read_json_object(file), [file]
        if settings.get("tokenizer_class") != _CLASS:
            raise UserError(
                f"{file} does not say tokenizer_class {_CLASS!r}; give the folder of a ByT5."
            )
        count = _count(settings)
        self.vocab_size = _FIRST_BYTE + _BYTES + count
        self.extra_ids = min(count, _UNUSED_BYTES) if pretrained_sentinels else count
        self._sentinels = {self.sentinel(i): f"<extra_id_{i}>" for i in range(self.extra_ids)}
        described = f"ByT5 {count} {pretrained_sentinels}"
        self.digest = hashlib.sha256(described.encode()).hexdigest()

    def __reduce__(self):
        return type(self), (self.path, *(True,) * self._pretrained)

    def __repr__(self) -> str:
        return f"ByteVocabulary({self.path!r}{', True' * self._pretrained})"

    def sentinel(self, i: int) -> int:
        """Returns the id of `<extra_id_i>`; see `vocabularies.require_sentinel`."""
        require_sentinel(self, i)
        first_behind = _FIRST_BYTE + _BYTES
        return first_behind - 1 - i if self._pretrained else first_behind + i

    def encode(self, text: str) -> list[int]:
        """Returns the ids of `text`, `<extra_id_n>` as sentinels, without EOS."""
        return [id for id, _ in self._parts(text)]

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns `encode` of each of `texts`."""
        return [self.encode(text) for text in texts]

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """Returns [start, end) in characters of each of the ids of `text`."""
        return characters_of([part for _, part in self._parts(text)])[1]

    def _parts(self, text: str) -> list[tuple[int, bytes]]:
        """Each id of `text`, and the bytes that it stands for."""
        parts, end = [], 0
        matches = [m for m in _SENTINEL.finditer(text) if int(m[1]) < self.extra_ids]
        for match in [*matches, None]:
            plain = text[end : match.start() if match else None].encode("utf-8", "surrogateescape")
            parts += [(_FIRST_BYTE + b, bytes([b])) for b in plain]
            if match:
                parts.append((self.sentinel(int(match[1])), match[0].encode()))
                end = match.end()
        return parts

    def locate(self, ids: Iterable[int]) -> tuple[str, list[tuple[int, int]]]:
        """Returns the text that `ids` stand for, and [start, end) in characters of each of them."""
        return characters_of([self._bytes(int(i)) for i in ids])

    def _bytes(self, id: int) -> bytes:
        if id in self._sentinels:
            return self._sentinels[id].encode()
        is_byte = _FIRST_BYTE <= id < _FIRST_BYTE + _BYTES
        return bytes([id - _FIRST_BYTE]) if is_byte else b""

    def decode(self, ids: Iterable[int], skip_special: bool = True) -> str:
        """Returns the text of `ids` up to the first EOS, without bytes that are no UTF-8.

        Args:
          ids: token ids; ids that the vocabulary lacks are left out.
          skip_special: leave out sentinels too.
        """
        before_end = itertools.takewhile(lambda i: i != EOS_ID, map(int, ids))
        left_out = self._sentinels if skip_special else ()
        kept = [self._bytes(i) for i in before_end if i not in left_out]
        return b"".join(kept).decode("utf-8", "ignore").strip()

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Returns what each id stands for; a byte as the character of its number."""
        return [self._bytes(int(i)).decode("latin-1") for i in ids]


def is_byte_vocabulary(folder: str | os.PathLike) -> bool:
    """Whether a folder is that of a ByT5."""
    file = Path(folder) / CONFIG
    return os.path.lexists(file) and read_json_object(file).get("tokenizer_class") == _CLASS


def _count(settings: dict) -> int:
    """transformers 5 lists the sentinels and writes extra_ids 0; earlier ones write both."""
    names = (settings.get(k) or [] for k in ("extra_special_tokens", "additional_special_tokens"))
    listed = max(sum(_SENTINEL.fullmatch(str(name)) is not None for name in some) for some in names)
    count = settings.get("extra_ids", 0 if listed else _EXTRA_IDS) or listed
    checks.require_int(1, 10**6, **{f"extra_ids of {CONFIG}": count})
    return count
