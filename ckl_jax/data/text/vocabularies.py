"""SentencePiece vocabularies with T5's sentinels, without TensorFlow.

The convention is SeqIO's: pad 0, end of sequence 1, unknown 2, then the model's tokens, then
`extra_ids` sentinels of which `<extra_id_0>` has the last id. A sentinel swallows the space before
it, so "born in <extra_id_0> ." and the ids of SeqIO's `SentencePieceVocabulary` agree.
"""

import base64
import hashlib
import io
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ckl_jax import checks
from ckl_jax.errors import UserError
from ckl_jax.files import os_errors, read_json_object, write_file

PAD_ID, EOS_ID, UNK_ID = 0, 1, 2
EXTRA_IDS = 100  # T5's number of sentinels
_MAX_SENTINELS = 10_000
MODEL_TYPES = ("unigram", "bpe")
NORMALIZERS = ("identity", "nfkc", "nfkc_cf", "nmt_nfkc", "nmt_nfkc_cf")
_CHARSMAP = "Precompiled"  # SentencePiece's normaliser, as tokenizers calls it
_SPACE = "\u2581"  # how SentencePiece writes a space
_SENTINEL_PIECE = re.compile(f"^{_SPACE}?<extra_id_(\\d+)>$")
_GLUED_SENTINEL = re.compile(r"(?<=\S)(<extra_id_\d+>)")
_GLUED_TEXT = re.compile(r"(<extra_id_\d+>)(?=\S)")


class Vocabulary:
    """The tokens of one SentencePiece model and its sentinels.

    Attributes:
      vocab_size: all ids, sentinels included.
      extra_ids: the number of sentinels.
      legacy_spacing: whether what follows a sentinel is encoded as if after a space.
      digest: SHA-256 (hex) over the model and its sentinels; in models with equal digests an id
        means the same token.
    """

    def __init__(
        self, path: str | os.PathLike, extra_ids: int | None = None, legacy_spacing: bool = False
    ):
        """Loads a model.

        Args:
          path: a SentencePiece `.model` file, or a T5's `tokenizer.json`.
          extra_ids: sentinels to add behind its pieces. A model that holds `<extra_id_n>` pieces
            itself (as some of Hugging Face's T5 files do) keeps those and gets no others. None:
            100 as T5's, but none for a model with byte fallback, which is one of running text.
          legacy_spacing: as transformers 4.12, with which CKL was run: in "<extra_id_0>." the full
            stop becomes the pieces of " .", so that nearly every input has one token more.

        Raises:
          UserError: the file is missing or no such model, its special ids are not T5's, it would
            have no sentinels, or another tokenizer file beside spiece.model has other tokens.
        """
        self.path = os.fspath(path)
        checks.require_bool(legacy_spacing=legacy_spacing)
        checks.require_int(0, _MAX_SENTINELS, **{"Vocabulary.extra_ids": extra_ids})
        self._extra_ids_wanted = extra_ids
        self.legacy_spacing = legacy_spacing
        model, self._sentinels = _load_with_sentinels(self.path, extra_ids)
        self.extra_ids = len(self._sentinels)
        self._special = frozenset((PAD_ID, UNK_ID, *self._sentinels))
        self.digest = hashlib.sha256(model).hexdigest()
        self._processor = _processor(model, self.path)
        self.vocab_size: int = self._processor.GetPieceSize()
        self._refuse_other_tokens()

    def _refuse_other_tokens(self) -> None:
        """Refuses files beside spiece.model, which transformers reads too, with tokens that the
        model lacks or has at other ids."""
        if Path(self.path).name != "spiece.model":
            return
        for name, tokens_of in _TOKENS_BESIDE.items():
            beside = Path(self.path).with_name(name)
            if not beside.is_file():
                continue
            try:
                tokens = [(str(t), int(i)) for t, i in tokens_of(read_json_object(beside))]
            except (AttributeError, KeyError, TypeError, ValueError) as e:
                raise UserError(f"{beside} is not such a file of transformers ({e!r}).") from e
            for content, place in tokens:
                there = self.pieces([place])[0] if 0 <= place < self.vocab_size else ""
                if not _is_piece(content, there):
                    raise UserError(
                        f"{beside} has the token {content!r} at id {place}, where {self.path} "
                        f"has {there!r}; remove the file that is not the model's."
                    )

    def __reduce__(self):
        legacy = (True,) * self.legacy_spacing
        return type(self), (self.path, self._extra_ids_wanted, *legacy)

    def __repr__(self) -> str:
        legacy = ", legacy_spacing=True" * self.legacy_spacing
        return f"Vocabulary({self.path!r}, extra_ids={self.extra_ids}{legacy})"

    pad_id, eos_id, unk_id = PAD_ID, EOS_ID, UNK_ID
    bos_id = None  # T5's vocabularies have no start of a text

    def sentinel(self, i: int) -> int:
        """Returns the id of `<extra_id_i>`; see `require_sentinel`."""
        require_sentinel(self, i)
        return self._sentinels[i]

    def encode(self, text: str) -> list[int]:
        """Returns the ids of `text`, `<extra_id_n>` as sentinels, without EOS."""
        return self._processor.EncodeAsIds(self._spaced(text))

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns `encode` of each of `texts`, faster than one at a time."""
        return self._processor.Encode([self._spaced(t) for t in texts], out_type=int)

    def _spaced(self, text: str) -> str:
        text = space_sentinels(text)
        return _GLUED_TEXT.sub(r"\1 ", text) if self.legacy_spacing else text

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """Returns [start, end) in characters of each of the ids of `text`."""
        pieces = self._processor.Encode(self._spaced(text), out_type="proto").pieces
        # The surfaces of the pieces are the text; what `begin` counts differs between versions.
        ends = list(itertools.accumulate(len(piece.surface) for piece in pieces))
        return list(zip([0, *ends[:-1]], ends, strict=True))

    def locate(self, ids: Iterable[int]) -> tuple[str, list[tuple[int, int]]]:
        """Returns the text that `ids` stand for, and [start, end) in characters of each of them.

        Unlike `decode` it leaves nothing out, so that every id has its place.
        """
        surfaces = [piece.replace(_SPACE, " ") for piece in self.pieces(ids)]
        ends = list(itertools.accumulate(map(len, surfaces)))
        return "".join(surfaces), list(zip([0, *ends][: len(ends)], ends, strict=True))

    def decode(self, ids: Iterable[int], skip_special: bool = True) -> str:
        """Returns the text of `ids` up to the first EOS.

        Args:
          ids: token ids. Ids that the vocabulary lacks (a model's table is often padded to a round
            size) count as unknown.
          skip_special: leave out unknown tokens and sentinels too, not only padding.
        """
        before_end = itertools.takewhile(lambda i: i != EOS_ID, map(int, ids))
        known = (i if 0 <= i < self.vocab_size else UNK_ID for i in before_end)
        left_out = self._special if skip_special else (PAD_ID,)
        return self._processor.DecodeIds([i for i in known if i not in left_out]).strip()

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Returns the token of each id."""
        return [self._processor.IdToPiece(int(i)) for i in ids]


def require_sentinel(vocabulary: Any, i: int) -> None:
    """Raises `UserError` unless a vocabulary has more than `i` sentinels."""
    if not 0 <= i < vocabulary.extra_ids:
        raise UserError(
            f"{vocabulary.path} has {vocabulary.extra_ids} sentinels, from <extra_id_0> on; "
            f"<extra_id_{i}> is not among them."
        )


def space_sentinels(text: str) -> str:
    """Puts a space before sentinels that lack one; only then are they recognised."""
    return _GLUED_SENTINEL.sub(r" \1", text) if "<extra_id_" in text else text


def _load_with_sentinels(path: str, extra_ids: int | None) -> tuple[bytes, list[int]]:
    """Returns the serialised model with its sentinels, and the sentinels' ids in order."""
    proto = _read_model(path)
    kind = type(proto.pieces[0]) if proto.pieces else None
    ids = {}
    for i, piece in enumerate(proto.pieces):
        if match := _SENTINEL_PIECE.match(piece.piece):
            ids[int(match[1])] = i
            piece.piece, piece.type = f"{_SPACE}<extra_id_{match[1]}>", kind.USER_DEFINED
    running_text = extra_ids is None and proto.trainer_spec.byte_fallback
    if not ids and not running_text:
        extra_ids = EXTRA_IDS if extra_ids is None else extra_ids
        if extra_ids < 1:
            raise UserError(
                f"The vocabulary {path} has no sentinels (<extra_id_0>, ...), which masked spans "
                "need; load it with extra_ids=100, T5's number."
            )
        for i in reversed(range(extra_ids)):
            ids[i] = len(proto.pieces)
            proto.pieces.add(piece=f"{_SPACE}<extra_id_{i}>", score=0.0, type=kind.USER_DEFINED)
    if sorted(ids) != list(range(len(ids))):
        raise UserError(f"The sentinels of {path} are not numbered from 0 without gaps.")
    return proto.SerializeToString(deterministic=True), [ids[i] for i in range(len(ids))]


def _read_model(path: str) -> Any:
    from google.protobuf.message import DecodeError
    from sentencepiece import sentencepiece_model_pb2

    if path.endswith(".json"):
        return _from_tokenizer(path)
    if not os.path.lexists(path):
        raise UserError(
            f"There is no vocabulary {path}; give a SentencePiece model: T5's own spiece.model, or "
            "the vocabulary.model that `ckl data prepare` makes."
        )
    with os_errors(path, "read"):
        data = Path(path).read_bytes()
    try:
        proto = sentencepiece_model_pb2.ModelProto.FromString(data)
    except DecodeError as e:
        raise UserError(f"{path} is not a SentencePiece model.") from e
    if not proto.pieces:
        raise UserError(f"{path} is not a SentencePiece model: it has no tokens.")
    if not all(isinstance(piece.piece, str) for piece in proto.pieces):
        raise UserError(f"{path} is damaged: a token of it is not UTF-8; fetch or make it again.")
    return proto


def _from_tokenizer(path: str) -> Any:
    """The SentencePiece model from which a Unigram `tokenizer.json` was made.

    transformers 5 saves a T5's vocabulary so, and no other file of it.
    """
    from sentencepiece import sentencepiece_model_pb2

    tokenizer = read_json_object(path)
    try:
        model, normalizer = tokenizer["model"], tokenizer.get("normalizer") or {}
        if model.get("type") != "Unigram" or normalizer.get("type", _CHARSMAP) != _CHARSMAP:
            raise UserError(
                f"{path} has a {model.get('type')} model, its text normalised by "
                f"{normalizer.get('type', 'nothing')}: only a Unigram model with {_CHARSMAP} or "
                "nothing can be read as T5's vocabulary; give its spiece.model."
            )
        proto = sentencepiece_model_pb2.ModelProto()
        kind = sentencepiece_model_pb2.ModelProto.SentencePiece
        types = {PAD_ID: kind.CONTROL, EOS_ID: kind.CONTROL, model["unk_id"]: kind.UNKNOWN}
        for i, (piece, score) in enumerate(model["vocab"]):
            proto.pieces.add(piece=piece, score=score, type=types.get(i, kind.NORMAL))
        _add_tokens(proto, tokenizer.get("added_tokens") or (), path)
        trainer, text = proto.trainer_spec, proto.normalizer_spec
        trainer.model_type, trainer.vocab_size = trainer.UNIGRAM, len(proto.pieces)
        trainer.pad_id, trainer.eos_id, trainer.bos_id = PAD_ID, EOS_ID, -1
        trainer.unk_id = model["unk_id"]
        trainer.pad_piece, trainer.eos_piece, trainer.unk_piece = (
            proto.pieces[i].piece for i in (PAD_ID, EOS_ID, model["unk_id"])
        )
        text.name = "identity"
        if charsmap := normalizer.get("precompiled_charsmap"):
            text.name, text.precompiled_charsmap = "nmt_nfkc", base64.b64decode(charsmap)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as e:
        raise UserError(f"{path} is not a tokenizer.json of `tokenizers` ({e!r}).") from e
    return proto


def _is_piece(token: str, piece: str) -> bool:
    """Whether a token is a piece of the model, where a sentinel may begin with a space."""
    if _SENTINEL_PIECE.match(piece):
        token, piece = token.lstrip(_SPACE), piece.lstrip(_SPACE)
    return bool(token) and token == piece


def _tokenizer_tokens(tokenizer: dict[str, Any]) -> list[tuple[str, Any]]:
    """The tokens of a `tokenizer.json` and their ids."""
    vocab = tokenizer["model"]["vocab"]
    if isinstance(vocab, list):  # a Unigram model's, with scores
        vocab = {piece: i for i, (piece, _) in enumerate(vocab)}
    added = tokenizer.get("added_tokens") or ()
    return [*vocab.items(), *((token["content"], token["id"]) for token in added)]


# The files beside a spiece.model that say more of its tokens: how each one says it.
_TOKENS_BESIDE = {
    "tokenizer.json": _tokenizer_tokens,
    "added_tokens.json": lambda tokens: list(tokens.items()),
    "tokenizer_config.json": lambda config: [
        (token["content"], i) for i, token in (config.get("added_tokens_decoder") or {}).items()
    ],
}


def _add_tokens(proto: Any, added: Iterable[dict[str, Any]], path: str) -> None:
    """Adds sentinels at the ids that a `tokenizer.json` gives them.

    transformers 5 puts those of a new tokenizer behind the pieces, the first one first.
    """
    for token in sorted(added, key=lambda token: token["id"]):
        content, place = token["content"], token["id"]
        there = proto.pieces[place].piece if place < len(proto.pieces) else ""
        if _is_piece(content, there):
            continue
        if place != len(proto.pieces) or not _SENTINEL_PIECE.match(content):
            raise UserError(
                f"{path} has the added token {content!r} at id {place}, and a T5's vocabulary "
                "has no tokens but its pieces and, behind them, <extra_id_i>; remove the token."
            )
        proto.pieces.add(piece=content, score=0.0, type=type(proto.pieces[0]).USER_DEFINED)


def model_bytes(path: str) -> bytes:
    """A SentencePiece model as the bytes of its `.model` file, whatever file it is in."""
    return _read_model(path).SerializeToString(deterministic=True)


def _processor(model: bytes, path: str) -> Any:
    from sentencepiece import SentencePieceProcessor

    processor = SentencePieceProcessor()
    try:
        processor.LoadFromSerializedProto(model)
    except RuntimeError as e:  # "INTERNAL: x is already defined."
        raise UserError(f"{path} is no vocabulary that SentencePiece takes: {e}") from e
    special = processor.pad_id(), processor.eos_id(), processor.unk_id()
    if special != (PAD_ID, EOS_ID, UNK_ID):
        raise UserError(
            f"{path} has pad, end-of-sequence and unknown at ids {special} where T5 has (0, 1, 2); "
            "train one with these ids, or take T5's own."
        )
    return processor


def digest_of(vocabulary: Any) -> str | None:
    """The digest of a vocabulary of this project, or of a SentencePiece vocabulary of SeqIO's.

    Returns:
      None where it is unknown: another kind, or a file that is not on this machine.
    """
    if own := getattr(vocabulary, "digest", None):
        return own
    path = getattr(vocabulary, "sentencepiece_model_file", None)
    if not path or not os.path.isfile(path):
        return None
    try:
        return Vocabulary(path, extra_ids=vocabulary.extra_ids or 0).digest
    except UserError:  # not T5's special ids, or no sentinels
        return None


def train_vocabulary(
    lines: Iterable[str],
    path: str | os.PathLike,
    size: int,
    extra_ids: int | None = None,
    *,
    max_lines: int | None = 1_000_000,
    max_piece_length: int = 16,
    model_type: str = "unigram",
    byte_fallback: bool = False,
    character_coverage: float = 1.0,
    normalizer: str = "identity",
) -> Vocabulary:
    """Trains a SentencePiece model with T5's special ids; deterministic.

    With the normaliser "identity" the text is not changed beyond runs of spaces, so
    `decode(encode(x)) == x` for text whose characters occur in `lines`.

    Args:
      lines: the text, a sentence or paragraph each; only the first `max_lines` are read.
      path: the `.model` file to write.
      size: tokens of the model, special ids included and sentinels not. A small corpus can yield
        fewer.
      extra_ids: sentinels of the returned vocabulary; see `Vocabulary`.
      max_lines: bound on memory; None: none.
      max_piece_length: characters of the longest token. A small one makes a small corpus's names
        fall into parts that occur in new names too, as in a vocabulary trained on much text.
      model_type: "unigram" or "bpe".
      byte_fallback: write characters that are not among the pieces as bytes, of which 256 pieces
        are, so that no text has unknown pieces.
      character_coverage: fraction of the characters of `lines` that have a token.
      normalizer: a rule of SentencePiece's, such as "identity", "nfkc" or "nmt_nfkc".

    Raises:
      UserError: there is no text, or too little variety in it to train on, or a setting that there
        is not.
    """
    from sentencepiece import SentencePieceTrainer

    checks.require_choice(MODEL_TYPES, model_type=model_type)
    checks.require_choice(NORMALIZERS, normalizer=normalizer)
    checks.require_number("a number above 0, up to 1", 1e-9, 1 + 1e-9, coverage=character_coverage)
    texts = (line for line in itertools.islice(lines, max_lines) if line.strip())
    first = next(texts, None)
    if first is None:
        raise UserError(f"Cannot train the vocabulary {os.fspath(path)}: the corpus is empty.")
    model = io.BytesIO()
    sentences = _Watched(itertools.chain([first], texts))
    try:
        SentencePieceTrainer.train(
            sentence_iterator=iter(sentences),
            model_writer=model,
            model_type=model_type,
            vocab_size=size,
            hard_vocab_limit=False,
            pad_id=PAD_ID,
            eos_id=EOS_ID,
            unk_id=UNK_ID,
            bos_id=-1,
            character_coverage=character_coverage,
            byte_fallback=byte_fallback,
            normalization_rule_name=normalizer,
            num_threads=1,  # the order of float additions, and so the model, depends on it
            max_sentence_length=1 << 20,
            max_sentencepiece_length=max_piece_length,
            minloglevel=2,
        )
    except RuntimeError as e:
        if sentences.error is not None:
            raise sentences.error from None
        raise UserError(
            f"Cannot train a vocabulary of {size:,} tokens for {os.fspath(path)}: {_cause(str(e))}"
        ) from e
    write_file(path, model.getvalue())
    return Vocabulary(path, extra_ids)


def _cause(text: str) -> str:
    """What SentencePiece says, without the place in its source."""
    if few := re.search(r"smaller than required_chars\. \d+ vs (\d+)", text):
        return f"the characters of the text alone take {int(few[1]):,}; give as many or more."
    return text.strip().splitlines()[-1].rpartition("] ")[2].strip()


class _Watched:
    """An iterator that keeps exceptions, since SentencePiece replaces them by its own."""

    def __init__(self, lines: Iterable[str]):
        self._lines = lines
        self.error: Exception | None = None

    def __iter__(self) -> Iterator[str]:
        try:
            yield from self._lines
        except Exception as e:
            self.error = e
            raise
