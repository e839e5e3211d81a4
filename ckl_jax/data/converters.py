"""From rows of token ids to the arrays that models take (numpy only)."""

from collections.abc import Sequence

import numpy as np


def encoder_decoder_batch(
    inputs: np.ndarray, targets: np.ndarray, valid: np.ndarray | None = None
) -> dict[str, np.ndarray]:
    """Makes the batch of an encoder-decoder model by teacher forcing.

    Args:
      inputs: int32 [B, S], zero-padded.
      targets: int32 [B, T], zero-padded.
      valid: bool [B]; rows that are False get no weight in the loss. None: all are valid.

    Returns:
      `encoder_input_tokens` int32 [B, S]; `decoder_input_tokens` int32 [B, T], the targets shifted
      right behind the start id 0; `decoder_target_tokens` int32 [B, T]; `decoder_loss_weights`
      float32 [B, T], 1 on the tokens that count.
    """
    inputs = np.asarray(inputs, np.int32)
    targets = np.asarray(targets, np.int32)
    weights = (targets != 0).astype(np.float32)
    if valid is not None:
        weights *= np.asarray(valid, np.float32)[:, None]
    return {
        "encoder_input_tokens": inputs,
        "decoder_input_tokens": shift_right(targets),
        "decoder_target_tokens": targets,
        "decoder_loss_weights": weights,
    }


def shift_right(targets: np.ndarray) -> np.ndarray:
    """Returns `targets` [B, T] moved right by one place, 0 first."""
    shifted = np.zeros_like(targets)
    shifted[:, 1:] = targets[:, :-1]
    return shifted


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
