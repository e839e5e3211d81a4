"""`t5x.losses`: the special factors by which a summed loss is divided, as gin files name them."""

import enum


class SpecialLossNormalizingFactor(enum.StrEnum):
    """Names that `models.EncoderDecoderModel(loss_normalizing_factor=...)` takes."""

    NUM_REAL_TARGET_TOKENS = "NUM_REAL_TARGET_TOKENS"
    NUM_TOTAL_TARGET_TOKENS = "NUM_TOTAL_TARGET_TOKENS"
    AVERAGE_PER_SEQUENCE = "AVERAGE_PER_SEQUENCE"
