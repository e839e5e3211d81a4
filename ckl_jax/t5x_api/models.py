"""`t5x.models`: the encoder-decoder with T5X's arguments and defaults.

Also `t5x.examples.t5.network`: the T5 of this project has T5X's fields, signatures and paths.
"""

import dataclasses
import enum
from collections.abc import Callable, Mapping
from typing import Any

import jax

from ckl_jax.models import decoding as native_decoding
from ckl_jax.models import encoder_decoder
from ckl_jax.models.decoding import Decoded

# "as": these names are offered to gin files from this module, not used in it.
from ckl_jax.models.t5 import T5Config as T5Config
from ckl_jax.models.t5 import Transformer as Transformer
from ckl_jax.t5x_api import decoding, names
from ckl_jax.t5x_api.task_errors import load_vocabulary


class SpecialLossNormalizingFactor(enum.StrEnum):
    """`t5x.losses`: names that `EncoderDecoderModel(loss_normalizing_factor=...)` takes."""

    NUM_REAL_TARGET_TOKENS = "NUM_REAL_TARGET_TOKENS"
    NUM_TOTAL_TARGET_TOKENS = "NUM_TOTAL_TARGET_TOKENS"
    AVERAGE_PER_SEQUENCE = "AVERAGE_PER_SEQUENCE"


@dataclasses.dataclass(frozen=True)
class DecoderParams:
    """Defaults of `predict_batch_with_aux`."""

    num_decodes: int = 1
    return_all_decodes: bool = False


@dataclasses.dataclass(frozen=True)
class EncoderDecoderModel(encoder_decoder.EncoderDecoderModel):
    """`models.encoder_decoder.EncoderDecoderModel` as T5X's gin files make it.

    Attributes:
      optimizer_def: `(schedule, stacked=()) -> optax transformation`, of `optimizers`.
      decode_fn: of `t5x_api.decoding`.
      feature_converter_cls: must be None: the features are those of an encoder-decoder.
      loss_normalizing_factor: None divides the summed loss by nothing, T5X's default.
      default_decoder_params: how many decodes to make, and to return.
    """

    optimizer_def: Callable[..., Any] | None = None
    decode_fn: Callable[..., Decoded] = decoding.beam_search
    feature_converter_cls: Any = None
    loss_normalizing_factor: str | float | None = None
    default_decoder_params: DecoderParams = DecoderParams()

    def __post_init__(self) -> None:
        names.not_offered(
            "models.EncoderDecoderModel", feature_converter_cls=self.feature_converter_cls
        )
        # SeqIO reads a vocabulary's file at first use; here a wrong path is reported before
        # training starts.
        load_vocabulary(self.input_vocabulary, "The model's input_vocabulary")
        load_vocabulary(self.output_vocabulary, "The model's output_vocabulary")
        super().__post_init__()

    def predict(
        self, params: Any, encoder_input_tokens: jax.Array, max_decode_length: int, **kwargs: Any
    ) -> Decoded:
        """As the native model's, by its beam search: probes name its arguments."""
        # Probes pass `beam_size` and `rule`, which T5X's names for the search do not take.
        native = dataclasses.replace(self, decode_fn=native_decoding.beam_search)
        # The base class's method on the replaced record: `native.predict` would come here again.
        search = super(EncoderDecoderModel, native).predict
        return search(params, encoder_input_tokens, max_decode_length, **kwargs)

    def predict_batch_with_aux(
        self,
        params: Any,
        batch: Mapping[str, jax.Array],
        rng: jax.Array | None = None,
        decoder_params: Mapping[str, Any] | None = None,
        return_all_decodes: bool | None = None,
        num_decodes: int | None = None,
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        """Decodes a batch.

        Args:
          params: parameters.
          batch: `encoder_input_tokens` [B, S] int32 and `decoder_input_tokens` [B, L], for its L.
          rng: for decodings that sample.
          decoder_params: further arguments of `decode_fn`.
          return_all_decodes: all, worst first, instead of the best.
          num_decodes: beams, or samples.

        Returns:
          Tokens [B, L] and {"scores": [B]}; with all decodes [B, R, L] and [B, R].
        """
        default = self.default_decoder_params
        count = default.num_decodes if num_decodes is None else num_decodes
        every = default.return_all_decodes if return_all_decodes is None else return_all_decodes
        decoded = super().predict(
            params,
            batch["encoder_input_tokens"],
            # As in T5X only the length counts.
            batch["decoder_input_tokens"].shape[1],
            num_decodes=count,
            decode_rng=rng,
            **(decoder_params or {}),
        )
        if every:
            # The native search returns the best first, T5X the best last.
            return decoded.tokens[:, ::-1], {"scores": decoded.scores[:, ::-1]}
        return decoded.tokens[:, 0], {"scores": decoded.scores[:, 0]}


def DecoderOnlyModel(*unused: Any, **also_unused: Any):  # noqa: N802 (T5X's name)
    """T5X's model of a decoder alone, which always raises `UserError`."""
    names.not_offered("models", DecoderOnlyModel="it")
