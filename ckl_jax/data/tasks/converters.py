"""From rows of token ids to the arrays that models take (numpy only)."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence

import numpy as np

Arrays = Mapping[str, np.ndarray]
# (features [B, T] int32 zero-padded, their rows' lengths [B], valid [B] bool) -> batch
Converter = Callable[[Arrays, Arrays, np.ndarray], dict[str, np.ndarray]]


def converter_of(
    task_features: Sequence[str],
    pad_id: int = 0,
    left_pad_legacy: bool = False,
    masking: "Masking | None" = None,
    marked_weight: float = 1.0,
) -> Converter:
    """The converter for a model whose batches are made of `task_features`.

    Args:
      task_features: ("inputs", "targets") of an encoder-decoder, ("targets",) of all others.
      pad_id, left_pad_legacy: see `decoder_only_batch`.
      masking: of a masked language model.
      marked_weight: the weight of marked tokens (`decoder_only_batch`, `masked_batch`).
    """
    if tuple(task_features) == ("inputs", "targets"):
        return lambda x, _, valid: encoder_decoder_batch(
            x["inputs"], x["targets"], valid, *(x.get(n) for n in ("input_segments", "segments"))
        )
    if masking is not None:
        convert = functools.partial(masked_batch, masking=masking, pad_id=pad_id)
    else:
        convert = functools.partial(
            decoder_only_batch, pad_id=pad_id, left_pad_legacy=left_pad_legacy
        )

    def read(x: Arrays, lengths: Arrays, valid: np.ndarray) -> dict[str, np.ndarray]:
        weights = None
        if marked_weight != 1:
            weights = np.where(x["marks"], marked_weight, 1).astype(np.float32)
        given = x["targets"], lengths["targets"], valid, x.get("segments")
        return convert(*given, weights=weights)

    return read


def decoder_only_batch(
    targets: np.ndarray,
    lengths: np.ndarray,
    valid: np.ndarray | None = None,
    segments: np.ndarray | None = None,
    *,
    pad_id: int = 0,
    left_pad_legacy: bool = False,
    weights: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """Makes the batch of a decoder-only model, which predicts the next token at every position.

    Rows have neither a start token nor an end: the first token is given, not predicted.

    Args:
      targets: int32 [B, T], padded behind `lengths` with anything; 0 may be a token.
      lengths: int [B], tokens of each row, at most T counted.
      valid: bool [B]; rows that are False get no weight in the loss. None: all are valid.
      segments: int32 [B, T], from 1, of packed rows: which document a token is of.
      pad_id: the token put on padding.
      left_pad_legacy: pad on the left instead. The first token is then predicted from the padding
        before it, if there is any.
      weights: float32 [B, T], of each token of `targets` in the loss; None: all are 1.

    Returns:
      `decoder_input_tokens`, `decoder_target_tokens` int32 [B, T], `decoder_loss_weights` float32
      [B, T]; of packed rows also `decoder_segment_ids` (0 on padding) and `decoder_positions`,
      of left-padded ones `decoder_segment_ids`.
    """
    targets = np.asarray(targets, np.int32)
    width = targets.shape[1]
    place = np.arange(width)[None]
    shift = np.maximum(width - np.asarray(lengths), 0)[:, None] if left_pad_legacy else 0
    source = place - shift
    inside = (source >= 0) & (source < np.asarray(lengths)[:, None])
    tokens = np.take_along_axis(targets, np.maximum(source, 0) + 0 * targets, axis=1)
    tokens = np.where(inside, tokens, pad_id).astype(np.int32)
    counted = _next(inside)
    batch = {}
    if segments is not None:
        ids = np.where(inside, segments, 0).astype(np.int32)
        counted &= _next(ids) == ids
        batch = {"decoder_segment_ids": ids, "decoder_positions": positions_within(ids)}
    elif left_pad_legacy:
        batch = {"decoder_segment_ids": inside.astype(np.int32)}
    if valid is not None:
        counted = counted & np.asarray(valid)[:, None]
    counted = counted.astype(np.float32)
    if weights is not None:
        moved = np.take_along_axis(weights, np.maximum(source, 0) + 0 * targets, axis=1)
        counted = counted * _next(moved)
    return {
        "decoder_input_tokens": tokens,
        "decoder_target_tokens": _next(tokens),
        "decoder_loss_weights": counted,
        **batch,
    }


@dataclasses.dataclass(frozen=True)
class Masking:
    """Settings of a masked language model's masking."""

    rate: float  # fraction of the tokens that are hidden
    mask_id: int  # what stands in their place
    special_ids: tuple[int, ...]  # tokens that are never hidden, those that begin and end a text


def masked_batch(
    targets: np.ndarray,
    lengths: np.ndarray,
    valid: np.ndarray | None = None,
    segments: np.ndarray | None = None,
    *,
    masking: Masking,
    pad_id: int = 0,
    weights: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """Makes the batch of a masked language model.

    Which tokens are hidden depends on a row's tokens alone, so that every evaluation hides the
    same. Training draws anew among the `maskable` ones (`models.masked`).

    Args:
      targets, lengths, valid, segments: as in `decoder_only_batch`; texts are whole, with the
        tokens that begin and end them.
      masking: what is hidden.
      pad_id: the token put on padding.
      weights: float32 [B, T], how many times as often each token is hidden; None: all are 1. A
        large one on the answers of sentences is salient span masking (REALM, section 3.4).

    Returns:
      `encoder_input_tokens`, `decoder_target_tokens` int32 [B, T]: with masks and without;
      `decoder_loss_weights` float32 [B, T], 1 on what is hidden; `maskable` float32 [B, T], the
      weights of what may be, 0 elsewhere; `encoder_segment_ids` int32 [B, T], 0 on padding; of
      packed rows also `encoder_positions`.
    """
    targets = np.asarray(targets, np.int32)
    inside = np.arange(targets.shape[1]) < np.asarray(lengths)[:, None]
    tokens = np.where(inside, targets, pad_id).astype(np.int32)
    maskable = inside & ~np.isin(tokens, masking.special_ids)
    if valid is not None:
        maskable &= np.asarray(valid)[:, None]
    maskable = maskable * (np.float32(1) if weights is None else weights)
    hidden = _draw(tokens) < masking.rate * maskable.astype(np.float64)
    batch = {"encoder_segment_ids": inside.astype(np.int32)}
    if segments is not None:
        ids = np.where(inside, segments, 0).astype(np.int32)
        batch = {"encoder_segment_ids": ids, "encoder_positions": positions_within(ids)}
    return {
        "encoder_input_tokens": np.where(hidden, masking.mask_id, tokens).astype(np.int32),
        "decoder_target_tokens": tokens,
        "decoder_loss_weights": hidden.astype(np.float32),
        "maskable": maskable,
        **batch,
    }


def _draw(tokens: np.ndarray) -> np.ndarray:
    """[B, T] numbers in [0, 1) that depend only on each row's tokens and the position."""
    place = np.arange(1, tokens.shape[1] + 1, dtype=np.uint64)
    row = (tokens.astype(np.uint64) * (place * np.uint64(0x9E3779B97F4A7C15))).sum(1, keepdims=True)
    x = row + place * np.uint64(0xBF58476D1CE4E5B9)
    for _ in range(2):  # SplitMix64's mixing
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0x94D049BB133111EB)
    return (x >> np.uint64(11)).astype(np.float64) / 2**53


def _next(x: np.ndarray) -> np.ndarray:
    """[B, T] shifted left by one position; 0 or False last."""
    moved = np.zeros_like(x)
    moved[:, :-1] = x[:, 1:]
    return moved


def positions_within(ids: np.ndarray) -> np.ndarray:
    """Counts from 0 within each run of equal ids, int32 [B, T]."""
    place = np.broadcast_to(np.arange(ids.shape[1], dtype=np.int32), ids.shape)
    begins = np.ones_like(ids, bool)
    begins[:, 1:] = ids[:, 1:] != ids[:, :-1]
    return place - np.maximum.accumulate(np.where(begins, place, 0), axis=1)


def encoder_decoder_batch(
    inputs: np.ndarray,
    targets: np.ndarray,
    valid: np.ndarray | None = None,
    input_segments: np.ndarray | None = None,
    segments: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """Makes the batch of an encoder-decoder model by teacher forcing.

    Args:
      inputs: int32 [B, S], zero-padded.
      targets: int32 [B, T], zero-padded.
      valid: bool [B]; rows that are False get no weight in the loss. None: all are valid.
      input_segments, segments: int32 [B, S] and [B, T], zero-padded, of packed rows: which example
        a token is of, from 1.

    Returns:
      `encoder_input_tokens` int32 [B, S]; `decoder_input_tokens` int32 [B, T], the targets of each
      example shifted right behind the start id 0; `decoder_target_tokens` int32 [B, T];
      `decoder_loss_weights` float32 [B, T], 1 on the tokens that count; of packed rows also
      `encoder_segment_ids` and `decoder_segment_ids`, the segments.
    """
    inputs = np.asarray(inputs, np.int32)
    targets = np.asarray(targets, np.int32)
    weights = (targets != 0).astype(np.float32)
    if valid is not None:
        weights *= np.asarray(valid, np.float32)[:, None]
    started, ids = np.zeros_like(targets), {}
    started[:, 1:] = targets[:, :-1]
    if segments is not None:
        started = np.where(positions_within(segments) == 0, 0, started)
        ids = {"encoder_segment_ids": input_segments, "decoder_segment_ids": segments}
    return {
        "encoder_input_tokens": inputs,
        "decoder_input_tokens": started,
        "decoder_target_tokens": targets,
        "decoder_loss_weights": weights,
        **ids,
    }


def pad_rows(rows: Sequence[Sequence[int]], length: int, eos_id: int | None = 1) -> np.ndarray:
    """Returns int32 [B, length]: `rows` cut or zero-padded to `length`.

    A row that ends with `eos_id` still does after the cut, as in the caches of training data.
    """
    padded = np.zeros((len(rows), length), np.int32)
    for i, row in enumerate(rows):
        kept = row[:length]
        padded[i, : len(kept)] = kept
        if len(row) > length and row[-1] == eos_id:
            padded[i, -1] = eos_id
    return padded
