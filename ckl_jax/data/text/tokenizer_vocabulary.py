"""Any vocabulary that is one `tokenizer.json`, by Hugging Face's `tokenizers` (no torch).

The interface of `vocabularies.Vocabulary`. Tokens that begin or end a text are those that
`tokenizer_config.json` beside it names, or else `generation_config.json`.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ckl_jax.data.text.byte_level import (
    ByteLevelVocabulary,
    characters_of,
    digest_of_tokenizer,
    load_tokenizer,
)
from ckl_jax.errors import UserError
from ckl_jax.files import parse_json, read_json_object

_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
_SPACE = "\u2581"
_CONFIG, _GENERATION = "tokenizer_config.json", "generation_config.json"


class TokenizerVocabulary(ByteLevelVocabulary):
    """The pieces of one `tokenizer.json`.

    Attributes:
      bos_id: of the token that begins a text; None where the family has none (Qwen).
      eos_id: of the token that ends one.
      pad_id: of the token of padding; `eos_id` where there is none.
    """

    def __init__(self, path: str | os.PathLike):
        """Loads a vocabulary.

        Args:
          path: `tokenizer.json`, or the folder with it and `tokenizer_config.json`.

        Raises:
          UserError: a file is missing or malformed, nothing ends a text, or `tokenizers` is not
            installed.
        """
        self.path, self.added_tokens = os.fspath(path), ()
        self._tokenizer, self.files = load_tokenizer(Path(path))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self.vocab_size = self._tokenizer.get_vocab_size()
        self._is_byte_level = "ByteLevel" in str(
            parse_json(self._tokenizer.to_str()).get("decoder")
        )
        folder = Path(self.files[0]).parent
        names, ids = (
            read_json_object(folder / name) if (folder / name).is_file() else {}
            for name in (_CONFIG, _GENERATION)
        )
        self.files += [folder / n for n in (_CONFIG, _GENERATION) if (folder / n).is_file()]
        self.bos_id, self.eos_id, self.pad_id = (
            self._special(names, ids, kind) for kind in ("bos", "eos", "pad")
        )
        if self.eos_id is None:
            raise UserError(
                f"{self.path} does not say which token ends a text: put tokenizer_config.json of "
                "the model beside it."
            )
        if self.pad_id is None:
            self.pad_id = self.eos_id
        self.digest = digest_of_tokenizer(self._tokenizer)

    def _special(self, names: dict[str, Any], ids: dict[str, Any], kind: str) -> int | None:
        """The id of a special token by its name in one file, or by its number in the other."""
        if f"{kind}_token" in names:
            token = names[f"{kind}_token"]
            token = token.get("content") if isinstance(token, dict) else token
            return None if token is None else self._tokenizer.token_to_id(token)
        given = ids.get(f"{kind}_token_id")
        first = given[0] if isinstance(given, list) and given else given
        return first if isinstance(first, int) and 0 <= first < self.vocab_size else None

    def __reduce__(self):
        return type(self), (self.path,)

    def __repr__(self) -> str:
        return f"TokenizerVocabulary({self.path!r})"

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
