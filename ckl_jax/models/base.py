"""The interface of a language model to training and evaluation: its loss and its scores.

The counterpart of T5X's `models.BaseTransformerModel`; it joins a linen module, the vocabularies
and a decoding function, and holds no parameters.
"""

import abc
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

import flax.linen as nn
import jax
import jax.numpy as jnp

from ckl_jax import checks
from ckl_jax.errors import UserError
from ckl_jax.models import decoding
from ckl_jax.models.layers import shards
from ckl_jax.models.per_token import PerToken

Batch = Mapping[str, jax.Array]
_LOGITS_BYTES = 2**30  # of a device's logits that are computed at once
_FROZEN_BYTES = 2**28  # the same of a frozen head, whose slopes are computed with them
NORMALIZING_FACTORS = ("NUM_REAL_TARGET_TOKENS", "NUM_TOTAL_TARGET_TOKENS", "AVERAGE_PER_SEQUENCE")


def logits_of(targets: jax.Array, logits: jax.Array) -> jax.Array:
    """The logits [B, T] of the target tokens [B, T], out of [B, T, V]."""
    return jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]


def token_losses(
    logits: jax.Array, targets: jax.Array, label_smoothing: float = 0.0, z_loss: float = 0.0
) -> tuple[jax.Array, jax.Array]:
    """Cross entropy of each token.

    Args:
      logits: [B, T, V] float32.
      targets: [B, T] int32.
      label_smoothing: mass spread over the other V - 1 tokens; the entropy of the smoothed target
        is subtracted, so that a perfect prediction scores 0.
      z_loss: factor of log^2 Z, added to the loss.

    Returns:
      The loss with z-loss, and the z-loss alone, each [B, T] float32.
    """
    # Computed once for both losses: cross entropy is log Z - logit, and z-loss is log^2 Z.
    log_z = jax.nn.logsumexp(logits, axis=-1)
    loss = log_z - logits_of(targets, logits)
    if label_smoothing:
        others = logits.shape[-1] - 1
        # T5X's smoothed target: `high` on the target token and `low` on each of the V - 1 others.
        low = label_smoothing / others
        high = 1.0 - label_smoothing
        # The sum of -log p over the whole vocabulary, without storing log p.
        total = logits.shape[-1] * log_z - logits.sum(axis=-1)
        # 1e-20 as in T5X, so that log never sees 0.
        entropy = -(high * jnp.log(high) + others * low * jnp.log(low + 1e-20))
        loss = (high - low) * loss + low * total - entropy
    z = z_loss * jnp.square(log_z)
    return loss + z, z


def weight_of_sequence(weights: jax.Array, segment_ids: jax.Array | None) -> jax.Array:
    """The summed weight of the sequence that each token belongs to.

    Args:
      weights: [B, T] float32.
      segment_ids: [B, T] int32, from 1, of the sequences packed into a row; None is one a row.

    Returns:
      [B, T], or [B, 1] for unpacked rows.
    """
    if segment_ids is None:
        return jnp.sum(weights, axis=-1, keepdims=True)
    count = weights.shape[-1] + 1  # 0 is padding, and no row holds more sequences than tokens

    def row(weights: jax.Array, ids: jax.Array) -> jax.Array:
        # [T] weights -> [T + 1] sums by sequence -> [T], each token's own sum.
        return jax.ops.segment_sum(weights, ids, num_segments=count)[ids]

    return jax.vmap(row)(weights, segment_ids)


@dataclasses.dataclass(frozen=True)
class BaseTransformerModel(abc.ABC):
    """A linen module with what training and evaluation need around it.

    Attributes:
      module: a linen module with T5X's signatures, and its configuration in `config`.
      decode_fn: `decoding.beam_search`, `decoding.greedy_decode`, or a partial of either.
      label_smoothing, z_loss: see `token_losses`.
      logits_at_a_time: positions of a row whose logits are computed at once in losses; the backward
        pass computes them again. 0 is all of them, None as many as 1 GiB holds.
      loss_normalizing_factor: what the summed loss is divided by: a number, None (1), or one of
        NORMALIZING_FACTORS. The default is the mean over the tokens of the global batch.
      frozen_head: that only parameters within layers train, which training sets: gradients of the
        loss need no second computation of logits, but are right for those parameters alone.
    """

    # The features of a task's rows that a batch of this model is made of.
    task_features: ClassVar[tuple[str, ...]] = ()
    # Whether `logits` takes a function of them, to be applied to a few positions at a time.
    splits_logits: ClassVar[bool] = False

    module: nn.Module
    # Keyword-only, so that subclasses can add positional fields (a vocabulary) behind `module`.
    decode_fn: Callable[..., decoding.Decoded] = dataclasses.field(
        default=decoding.beam_search, kw_only=True
    )
    label_smoothing: float = dataclasses.field(default=0.0, kw_only=True)
    z_loss: float = dataclasses.field(default=0.0, kw_only=True)
    logits_at_a_time: int | None = dataclasses.field(default=None, kw_only=True)
    loss_normalizing_factor: str | float | None = dataclasses.field(
        default="NUM_REAL_TARGET_TOKENS", kw_only=True
    )
    frozen_head: bool = dataclasses.field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        for vocabulary in ("input_vocabulary", "output_vocabulary"):
            checks.require_vocabulary(VOCABULARY=getattr(self, vocabulary, None))
        factor = self.loss_normalizing_factor
        if isinstance(factor, str):
            checks.require_choice(NORMALIZING_FACTORS, LOSS_NORMALIZING_FACTOR=factor)
        else:
            checks.require_positive(LOSS_NORMALIZING_FACTOR=factor)
        checks.require_number("a number in [0, 1)", 0.0, 1.0, LABEL_SMOOTHING=self.label_smoothing)
        checks.require_number("a finite number, 0 or more", 0.0, Z_LOSS=self.z_loss)
        checks.require_int(0, LOGITS_AT_A_TIME=self.logits_at_a_time)

    @classmethod
    def with_vocabulary(cls, module: nn.Module, vocabulary: Any, **fields: Any) -> Self:
        """The model of a linen module, with one vocabulary for its input and output."""
        return cls(module, vocabulary=vocabulary, **fields)

    @property
    def config(self) -> Any:
        return self.module.config

    @property
    def draws(self) -> bool:
        """Whether the training loss is random and takes a key, for example because of dropout."""
        return self.config.dropout_rate > 0

    def check_length(self, length: int, what: str = "") -> None:
        """Raises `UserError` if rows, or `what`, exceed the model's positions, where it has any."""
        limit = getattr(self.config, "max_positions", length)
        if length > limit:
            hint = "; give smaller TASK_FEATURE_LENGTHS, or a smaller ROW_LENGTH if that is set"
            hint = "" if what else hint
            what = what or "Rows"
            raise UserError(
                f"{what} of {length} tokens exceed the model's {limit} positions{hint}."
            )

    def with_method(self, method: Any) -> Self:
        """The same model with a method's projections and side networks in it."""
        # The module is static: its configuration is what selects projections and side networks.
        module = self.module.clone(config=method.extend(self.config))
        return dataclasses.replace(self, module=module)

    @abc.abstractmethod
    def init(self, key: jax.Array) -> dict[str, Any]:
        """Initial variables: `params`, and their logical axes in `params_axes`."""

    @abc.abstractmethod
    def logits(self, params: Any, batch: Batch, dropout_rng: jax.Array | None = None) -> jax.Array:
        """Teacher-forced logits [B, T, V] float32; with dropout if a key is given."""

    def apply(
        self, params: Any, *inputs: Any, dropout_rng: jax.Array | None = None, **options: Any
    ) -> Any:
        """Calls the module, with dropout exactly if there is a key, without which flax raises."""
        options["rngs"] = None if dropout_rng is None else {"dropout": dropout_rng}
        on = dropout_rng is not None
        return self.module.apply({"params": params}, *inputs, enable_dropout=on, **options)

    def empty_cache(self, params: Any, *inputs: jax.Array) -> Any:
        """The cache before the first step, for so many positions as the inputs have."""
        # Only shapes are wanted: `eval_shape` traces the call without computing anything. The first
        # call with `decode` only sizes the cache; see `layers.Attention`.
        shapes = jax.eval_shape(
            lambda: self.apply(params, *inputs, decode=True, mutable=["cache"])
        )[1]["cache"]
        return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)

    def loss_fn(
        self, params: Any, batch: Batch, dropout_rng: jax.Array | None = None
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        """The *sum* of the loss, and what to divide it by.

        Kept apart so that micro-batches and hosts add both and divide once.

        Returns:
          The unnormalised loss (), and sums over the batch, each (): `denominator`, `loss`,
          `z_loss`, `correct` and `tokens`.
        """
        return self._sums(self.per_token(self._losses, params, batch, dropout_rng), batch)

    def per_token(
        self,
        function: Callable[[jax.Array, jax.Array], Any],
        params: Any,
        batch: Batch,
        dropout_rng: jax.Array | None = None,
    ) -> Any:
        """A function of logits and targets, for a few positions at a time where they are large.

        Args:
          function: (logits [B, t, V] float32, targets [B, t]) -> a tree of [B, t]; with
            `frozen_head` a tuple, of which only the first is minimised.
          params, batch, dropout_rng: as for `logits`.

        Returns:
          A tree of [B, T].
        """
        targets = batch["decoder_target_tokens"]
        rows, length = targets.shape
        size = self.logits_at_a_time
        if size is None:
            whole = 4 * rows * getattr(self.config, "vocab_size", 1)
            # A table that is split over devices is gathered for each part: as often as without a
            # frozen head, where each part is computed twice.
            frozen = _FROZEN_BYTES if shards("embed") == 1 else _LOGITS_BYTES // 2
            room = frozen if self.frozen_head else _LOGITS_BYTES
            size = max(1, room * shards("batch") * shards("vocab") // whole)
        if not self.splits_logits or size == 0 or size >= length:
            return function(self.logits(params, batch, dropout_rng), targets)
        made = PerToken(function, targets, size, self.frozen_head)
        return self.logits(params, batch, dropout_rng, made)

    def _losses(self, logits: jax.Array, targets: jax.Array) -> tuple[jax.Array, ...]:
        loss, z = token_losses(logits, targets, self.label_smoothing, self.z_loss)
        # The loss computes the maximum anyway; an argmax over the vocabulary would cost more.
        return loss, z, logits_of(targets, logits) == jnp.max(logits, axis=-1)

    def sums_of(
        self, logits: jax.Array, batch: Batch, extra: jax.Array | None = None
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        """`loss_fn` of logits [B, T, V]; `extra` [B, T] adds to what is minimised alone."""
        return self._sums(self._losses(logits, batch["decoder_target_tokens"]), batch, extra)

    def _sums(
        self, losses: tuple[jax.Array, ...], batch: Batch, extra: jax.Array | None = None
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        loss, z, hit = losses
        weights = batch["decoder_loss_weights"].astype(jnp.float32)
        # scale: () or [B, 1] or [B, T]; denominator: ().
        scale, denominator = self._normalizer(weights, batch.get("decoder_segment_ids"))
        sums = {
            "denominator": denominator,
            "loss": jnp.sum(loss * weights),  # without `extra`: comparable between methods
            "z_loss": jnp.sum(z * weights),
            "correct": jnp.sum(jnp.where(hit, weights, 0.0)),
            "tokens": jnp.sum(weights),
        }
        # `extra` (distillation) enters the gradient but not the reported `loss` above.
        total = loss if extra is None else loss + extra
        return jnp.sum(total * weights * scale), sums

    def _normalizer(
        self, weights: jax.Array, segment_ids: jax.Array | None
    ) -> tuple[jax.Array, jax.Array]:
        factor = self.loss_normalizing_factor
        # A denominator of 0 means "do not divide"; `train.step` replaces it by 1.
        one = jnp.ones((), jnp.float32)
        # None: the plain sum over tokens.
        if factor is None:
            return one, jnp.zeros((), jnp.float32)
        if factor == "NUM_REAL_TARGET_TOKENS":
            return one, jnp.sum(weights)
        if factor == "NUM_TOTAL_TARGET_TOKENS":
            return one, jnp.asarray(weights.size, jnp.float32)
        if factor == "AVERAGE_PER_SEQUENCE":
            total = weight_of_sequence(weights, segment_ids)
            # The inner `where` keeps 1/0 out of the graph; rows that are all padding weigh 0.
            scale = jnp.where(total > 0, 1.0 / jnp.where(total > 0, total, 1.0), 0.0)
            return scale, jnp.sum(weights * scale)
        # A constant must not grow with the number of micro-batches.
        return one / factor, jnp.zeros((), jnp.float32)

    def score_batch(self, params: Any, batch: Batch) -> jax.Array:
        """Log likelihood of the targets, [B]: no smoothing, no z-loss, no dropout."""
        # The default arguments leave out smoothing and z-loss, which are no log likelihood.
        losses, _ = self.per_token(token_losses, params, batch)
        return -jnp.sum(losses * batch["decoder_loss_weights"], axis=-1)

    def initial_memory(self, batch_size: int, length: int | None = None) -> Any:
        """The memory before the first chunk of a text: a tree of arrays.

        Args:
          batch_size: B, rows.
          length: positions to remember, for a model with a memory; None is its own number.

        Returns:
          (), the memory of a model that has none.
        """
        del batch_size, length
        return ()

    def stream_losses(
        self, params: Any, batch: Batch, memory: Any, dropout_rng: jax.Array | None = None
    ) -> tuple[jax.Array, Any]:
        """The loss of each token of a chunk of running text, given the memory.

        No gradient flows into the memory. A model without one sees its chunk alone: its context is
        `decoder_input_tokens`, the first of which is the token before the chunk.

        Args:
          batch: `decoder_input_tokens`, `decoder_target_tokens` [B, T] int32,
            `decoder_loss_weights` [B, T], 0 on padding, which is on the right.
          memory: of `initial_memory`, or as the chunk before it left it.
          dropout_rng: None is without dropout.

        Returns:
          Losses [B, T] float32 in nats, without smoothing and z-loss (padding has numbers too), and
          the memory for the next chunk.
        """
        losses, _ = self.per_token(token_losses, params, batch, dropout_rng)
        return losses, memory


class OneVocabularyModel(BaseTransformerModel):
    """A model that reads and writes tokens of one `vocabulary`."""

    @property
    def input_vocabulary(self) -> Any:
        return self.vocabulary

    @property
    def output_vocabulary(self) -> Any:
        return self.vocabulary
