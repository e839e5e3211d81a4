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
    END,
    ByteLevelVocabulary,
    characters_of,
    digest_of_tokenizer,
    load_tokenizer,
)
from ckl_jax.errors import UserError
from ckl_jax.files import ANY_NUMBER, parse_json, read_json_object

_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
_SPACE = "\u2581"
_CONFIG, _GENERATION = "tokenizer_config.json", "generation_config.json"


class TokenizerVocabulary(ByteLevelVocabulary):
    """The pieces of one `tokenizer.json`.

    Attributes:
      bos_id: of the token that begins a text; None where the family has none (Qwen).
      eos_id: of the token that ends one.
      pad_id: of the token of padding; `eos_id` where there is none.
      around: the ids that the family puts before and after every text.
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
        self._is_byte_level = _is_byte_level(self._tokenizer)
        folder = Path(self.files[0]).parent
        names, ids = (_settings(folder / name) for name in (_CONFIG, _GENERATION))
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
        self.around = self._template(names)
        self.digest = digest_of_tokenizer(self._tokenizer)

    def _template(self, names: dict[str, Any]) -> tuple[list[int], list[int]]:
        whole, bare = (
            self._tokenizer.encode("a", add_special_tokens=flag).ids for flag in (True, False)
        )
        start = next((i for i in range(len(whole)) if whole[i : i + len(bare)] == bare), len(whole))
        around = [whole[:start], whole[start + len(bare) :]]
        # transformers makes the template anew from these settings.
        for i, (name, token) in enumerate((("bos", self.bos_id), ("eos", self.eos_id))):
            if (adds := names.get(f"add_{name}_token")) is not None:
                around[i] = [token] if adds and token is not None else []
        return around[0], around[1]

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


def _settings(path: Path) -> dict[str, Any]:
    return read_json_object(path) if path.is_file() else {}


def _is_byte_level(tokenizer: Any) -> bool:
    return "ByteLevel" in str(parse_json(tokenizer.to_str(), ANY_NUMBER).get("decoder"))


def is_gpt2s(path: Path) -> bool:
    """Whether a folder's tokens end texts as GPT-2's do, so that no settings are needed."""
    tokenizer, files = load_tokenizer(path)
    end = _settings(files[0].parent / _CONFIG).get("eos_token", END)
    end = end.get("content") if isinstance(end, dict) else end
    known = tokenizer.token_to_id(END) is not None and end in (END, "</s>", None)
    return len(files) > 1 or (known and _is_byte_level(tokenizer))
