"""Greedy and beam search over a cached one-step decoder.

Everything here is a pure function on arrays around one `lax.while_loop`, so it can be jitted. The
decoder is seen through one function, `tokens_to_logits(ids, cache) -> (logits, cache)`, which
reads the ids chosen last (`[N, 1]` int32), extends the cache by one position and returns the next
position's logits (`[N, V]`). Rows are example-major: row `b * K + k` is beam `k` of example `b`.

Letters: `B` examples, `K` beams, `N = B * K` rows, `V` vocabulary, `L` decode length. `L` counts
neither the start token nor anything before it; a sequence that ends keeps its EOS and is zero
after it. Sequences come best first.

Two rules for what a finished sequence is worth and when to stop (`rule=`, from
`beam_rules.py`):

- `'t5x'`: T5X's. A sequence of `n` tokens (EOS included) scores `sum log p / ((5 + n) / 6)**alpha`;
  any of the 2K best candidates may finish; the search ends when no open beam can still beat the
  worst of K finished sequences. An example without any finished sequence returns its open beams,
  scored by plain `sum log p`.
- `'hf'`: Hugging Face's as of transformers 4.12, the one published numbers were made with. A
  sequence scores `sum log p / n**length_penalty`, where `n` counts the start token and not EOS; a
  candidate finishes only from rank K or better; the search ends when K sequences have finished
  (`early_stopping`), or when the best candidate can no longer beat the worst of them. At the length
  limit the open beams of unfinished examples compete on the same terms.

Both rules look at the 2K best continuations of a step, enough to leave K open beams even if every
beam ends. Difference from both originals: a continuation of probability zero is never returned as
if it had been found. Where fewer than `num_return` sequences exist (`V**L` is small), the rest are
all-zero tokens with score `-inf`; the originals return duplicates or unspecified tokens there.
Exact ties go to the better beam, then to the smaller token id.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ckl_jax.models import beam_rules

Cache = Any
# The axis of the rows in a cache leaf: the same for all, or by the names on the way to the leaf.
CacheOffset = int | Callable[[tuple[str, ...]], int]
TokensToLogits = Callable[[jax.Array, Cache], tuple[jax.Array, Cache]]

# Cache leaves that hold no row per sequence, as T5X's layers name them.
_SHARED_LEAVES = ("cache_index", "cached_bias", "position_embedder_index")


class Decoded(NamedTuple):
    """Decoded sequences, best first."""

    tokens: jax.Array  # `[B, R, L]` int32, with EOS where the sequence ended and 0 after it
    scores: jax.Array  # `[B, R]` float32, in the scale of the search that made them


def expand_to_beams(tree: Any, beam_size: int, cache_offset: CacheOffset = 0) -> Any:
    """Repeats every row `beam_size` times: `[B, ...]` leaves become `[B * K, ...]`.

    Args:
      tree: arrays with the batch on axis `cache_offset`. Leaves without such an axis, and those
        that T5X's layers share over the batch (`cache_index`), are passed through.
      beam_size: `K`.
      cache_offset: 1 if a stacked `layers` axis comes first, else 0.
    """

    def repeat(leaf, axis):
        return jnp.repeat(leaf, beam_size, axis=axis)

    return _map_rows(repeat, tree, cache_offset)


def gather_beams(
    tree: Any,
    parents: jax.Array,
    cache_offset: CacheOffset = 0,
    constant_leaves: tuple[str, ...] = (),
) -> Any:
    """Reorders rows so that beam `k` of example `b` continues beam `parents[b, k]`.

    Args:
      tree: arrays with `B * K` rows on axis `cache_offset` (others pass through).
      parents: `[B, K]` int32, each in `0..K-1`.
      cache_offset: 1 if a stacked `layers` axis comes first, else 0.
      constant_leaves: names of leaves that are equal for all beams of an example (keys and values
        of the encoded input, say): left as they are, which saves the copy.
    """
    # Row numbers in the flat [B * K] layout: every parent is an index within its own example.
    batch_size, beam_size = parents.shape
    rows = (jnp.arange(batch_size)[:, None] * beam_size + parents).reshape(-1)

    def take(leaf, axis):
        # "clip" because the indices are in range by construction; the default mode would also emit
        # a fill for indices out of range.
        return jnp.take(leaf, rows, axis=axis, mode="clip")

    return _map_rows(take, tree, cache_offset, constant_leaves)


def greedy_decode(
    tokens_to_logits: TokensToLogits,
    cache: Cache,
    *,
    batch_size: int,
    max_decode_len: int,
    prompt_length: int = 1,
    eos_id: int = 1,
    start_id: int | jax.Array = 0,
    cache_offset: CacheOffset = 0,
) -> Decoded:
    """Takes the most probable token at every step.

    Args:
      tokens_to_logits: one step of the decoder, with `N = B`.
      cache: the decoder's cache before the first step, with `B` rows.
      batch_size: `B`.
      max_decode_len: `L`.
      eos_id: the token that ends a sequence.
      start_id: the token that is fed first: one for all, or each example's own, [B].
      prompt_length, cache_offset: unused; taken so that both searches are called alike.

    Returns:
      `Decoded` with `R = 1`; a score is the sum of the log probabilities of the tokens, EOS
      included.
    """
    del cache_offset, prompt_length
    _check_sizes(batch_size, 1, max_decode_len, 1)

    def choose(logits, step):
        del step
        # [N, V]
        log_probs = jax.nn.log_softmax(logits)
        chosen = jnp.argmax(log_probs, axis=-1).astype(jnp.int32)
        return chosen, _at(log_probs, chosen)

    decoded = _decode(tokens_to_logits, cache, choose, batch_size, max_decode_len, eos_id, start_id)
    return Decoded(decoded.tokens[:, None, :], decoded.scores[:, None])


def temperature_sample(
    tokens_to_logits: TokensToLogits,
    cache: Cache,
    *,
    batch_size: int,
    max_decode_len: int,
    rng: jax.Array,
    num_return: int = 1,
    temperature: float = 1.0,
    topk: int = 0,
    topp: float = 0.0,
    prompt_length: int = 1,
    eos_id: int = 1,
    start_id: int | jax.Array = 0,
    cache_offset: CacheOffset = 0,
) -> Decoded:
    """Draws sequences from the model's distribution, T5X's way.

    Args:
      tokens_to_logits: one step of the decoder, with `N = B * R`.
      cache: the decoder's cache before the first step, with `B` rows; it is expanded here.
      batch_size: `B`.
      max_decode_len: `L`.
      rng: typed random key.
      num_return: `R`, independent sequences of each example.
      temperature: divides the logits; 0 takes the most probable token.
      topk: draw from the k most probable tokens; 0 draws from all. T5X's own default is 1.
      topp: draw from the fewest tokens whose probability reaches this; 0 draws from all.
      prompt_length: unused; taken so that all decodings are called alike.
      eos_id: the token that ends a sequence.
      start_id: the token that is fed first: one for all, or each example's own, [B].
      cache_offset: axis of the rows in cache leaves.

    Returns:
      `Decoded`, most probable first. A score is the sum of the log probabilities of the tokens
      under the distribution that was drawn from, so 0 where it has one token.

    Raises:
      ValueError: a size, the temperature, topk or topp is out of range.
    """
    del prompt_length
    _check_sizes(batch_size, num_return, max_decode_len, num_return)
    if temperature < 0 or topk < 0 or not 0 <= topp <= 1:
        raise ValueError(
            f"temperature ({temperature}) and topk ({topk}) must be 0 or more, topp ({topp}) in "
            "[0, 1]"
        )
    # Temperature 0 is greedy. Dividing by 0 would give NaN, so it is replaced by top 1.
    topk = 1 if temperature == 0 else topk
    divisor = temperature or 1.0

    def choose(logits, step):
        log_probs = jax.nn.log_softmax(_truncate(logits / divisor, topk, topp))
        # A key per step: `rng` itself must not be used twice.
        chosen = jax.random.categorical(jax.random.fold_in(rng, step), log_probs)
        return chosen.astype(jnp.int32), _at(log_probs, chosen)

    rows = batch_size * num_return
    # Independent draws are rows, laid out as the beams of `beam_search` are.
    expanded = expand_to_beams(cache, num_return, cache_offset)
    drawn = _decode(tokens_to_logits, expanded, choose, rows, max_decode_len, eos_id, start_id)
    scores = drawn.scores.reshape(batch_size, num_return)
    tokens = drawn.tokens.reshape(batch_size, num_return, max_decode_len)
    # Stable, so that equal scores keep the order in which they were drawn.
    order = jnp.argsort(-scores, axis=1, stable=True)
    return Decoded(
        jnp.take_along_axis(tokens, order[..., None], axis=1),
        jnp.take_along_axis(scores, order, axis=1),
    )


def _truncate(logits: jax.Array, topk: int, topp: float) -> jax.Array:
    """-inf for the tokens [N, V] that are not among the `topk`, then not among the `topp`."""
    # Both filters keep ties with the last token that is kept, as T5X's do.
    if topk:
        threshold = lax.top_k(logits, min(topk, logits.shape[-1]))[0][:, -1:]
        logits = jnp.where(logits < threshold, -jnp.inf, logits)
    if topp:
        ranked = -jnp.sort(-logits, axis=-1)
        # [N, V]: the probability of all tokens ranked before this one. The first is always kept,
        # because its sum is 0 < topp.
        above = jnp.cumsum(jax.nn.softmax(ranked), axis=-1) - jax.nn.softmax(ranked)
        threshold = jnp.min(jnp.where(above < topp, ranked, jnp.inf), axis=-1, keepdims=True)
        logits = jnp.where(logits < threshold, -jnp.inf, logits)
    return logits


def _at(log_probs: jax.Array, tokens: jax.Array) -> jax.Array:
    return jnp.take_along_axis(log_probs, tokens[:, None], axis=-1)[:, 0]


def _decode(tokens_to_logits, cache, choose, rows, max_decode_len, eos_id, start_id) -> Decoded:
    """Decodes `rows` sequences token by token: tokens [N, L], scores [N].

    `choose` maps float32 logits [N, V] and the step to tokens [N] int32 and their scores [N].
    """

    def is_open(state):
        step, _, _, _, ended, _ = state
        # The loop ends early once every row has emitted EOS.
        return (step < max_decode_len) & ~jnp.all(ended)

    # Shapes in the loop are static: tokens are [N, L] from the start, rows that have ended go on
    # with token 0 and add 0 to their score.
    def advance(state):
        step, tokens, scores, last, ended, cache = state
        logits, cache = tokens_to_logits(last[:, None], cache)
        chosen, gain = choose(logits.astype(jnp.float32), step)
        chosen = jnp.where(ended, 0, chosen)
        tokens = lax.dynamic_update_slice(tokens, chosen[:, None], (0, step))
        scores = scores + jnp.where(ended, 0.0, gain)
        return step + 1, tokens, scores, chosen, ended | (chosen == eos_id), cache

    start = (
        jnp.int32(0),
        jnp.zeros((rows, max_decode_len), jnp.int32),
        jnp.zeros((rows,), jnp.float32),
        _start_ids(start_id, rows),
        jnp.zeros((rows,), bool),
        cache,
    )
    # `while_loop` and not `scan`: the number of steps depends on the data.
    _, tokens, scores, _, _, _ = lax.while_loop(is_open, advance, start)
    return Decoded(tokens, scores)


def _start_ids(start_id, rows):
    """[N] int32 of one token, or of one for each example; rows of an example are neighbours."""
    given = jnp.asarray(start_id, jnp.int32).reshape(-1)
    return jnp.repeat(given, rows // len(given))


class _Candidates(NamedTuple):
    """The best continuations of a step, best first; `C = 2K`."""

    scores: jax.Array  # [B, C] sum of log probabilities, -inf where there is none
    tokens: jax.Array  # [B, C, L]
    last: jax.Array  # [B, C] the token added
    parents: jax.Array  # [B, C] the beam continued
    ended: jax.Array  # [B, C] bool


class _State(NamedTuple):
    step: jax.Array  # number of tokens in an open beam
    live_tokens: jax.Array  # [B, K, L]
    live_scores: jax.Array  # [B, K] sum of log probabilities, best first; -inf: no beam
    last: jax.Array  # [B, K] the tokens to feed next
    bank_tokens: jax.Array  # [B, K, L] finished sequences, best first
    bank_scores: jax.Array  # [B, K] their final scores; -inf: free slot
    closed: jax.Array  # [B] bool: the search is over for this example
    cache: Cache


def beam_search(
    tokens_to_logits: TokensToLogits,
    cache: Cache,
    *,
    batch_size: int,
    beam_size: int,
    max_decode_len: int,
    rule: str = "hf",
    alpha: float = 0.6,
    length_penalty: float = 1.0,
    early_stopping: bool = True,
    prompt_length: int = 1,
    eos_id: int = 1,
    start_id: int | jax.Array = 0,
    cache_offset: CacheOffset = 0,
    num_return: int | None = None,
    constant_leaves: tuple[str, ...] = (),
) -> Decoded:
    """Beam search; see the module's text for the two rules.

    Args:
      tokens_to_logits: one step of the decoder, with `N = B * K`. What it closes over (the encoded
        input) is not touched: a decoder that wants `N` rows of it gets them by `expand_to_beams`;
        `models.t5` takes `B` and lets the beams of an example share them.
      cache: the decoder's cache before the first step, with `B` rows; it is expanded here.
      batch_size: `B`.
      beam_size: `K`.
      max_decode_len: `L`. Hugging Face's `max_length` is `L + 1`.
      rule: `'t5x'` or `'hf'`.
      alpha: exponent of T5X's brevity penalty (`'t5x'` only).
      length_penalty: exponent of the length (`'hf'` only).
      early_stopping: stop at K finished sequences (`'hf'` only).
      prompt_length: tokens before the decoded ones that count as part of a sequence's length
        (`'hf'` only): 1 is the start token; of a decoder alone, the width of the prompts.
      eos_id: the token that ends a sequence.
      start_id: the token that is fed first: one for all, or each example's own, [B].
      cache_offset: axis of the rows in cache leaves: 1 if a stacked `layers` axis comes first.
      num_return: `R`, at most K; None returns all K.
      constant_leaves: names of cache leaves equal over the beams of an example, never reordered.

    Raises:
      ValueError: unknown rule, or a size out of range.
    """
    num_return = beam_size if num_return is None else num_return
    _check_sizes(batch_size, beam_size, max_decode_len, num_return)
    chosen_rule = beam_rules.make_rule(
        rule, alpha, max_decode_len, length_penalty, early_stopping, prompt_length
    )

    def is_open(state):
        return (state.step < max_decode_len) & ~jnp.all(state.closed)

    # One step: extend every open beam, bank what finishes, keep K open beams, follow them in the
    # cache.
    def advance(state):
        logits, cache = tokens_to_logits(state.last.reshape(-1, 1), state.cache)
        candidates = _extend(state, logits, eos_id)
        live, parents = _keep_open(candidates, beam_size)
        finishing = chosen_rule.bank_scores(candidates, state.step)
        # A closed example banks nothing more, although the loop goes on for the others.
        finishing = jnp.where(state.closed[:, None], -jnp.inf, finishing)
        # The K best of those banked before [B, K] and those finishing now [B, 2K].
        bank_tokens, bank_scores = beam_rules.best(
            jnp.concatenate([state.bank_scores, finishing], axis=1),
            jnp.concatenate([state.bank_tokens, candidates.tokens], axis=1),
            beam_size,
        )
        # With one beam every parent is 0, and reordering would copy the whole cache for nothing.
        if beam_size > 1:
            cache = gather_beams(cache, parents, cache_offset, constant_leaves)
        new = state._replace(
            step=state.step + 1,
            live_tokens=live.tokens,
            live_scores=live.scores,
            last=live.last,
            bank_tokens=bank_tokens,
            bank_scores=bank_scores,
            cache=cache,
        )
        return new._replace(closed=state.closed | chosen_rule.is_closed(new, candidates))

    expanded = expand_to_beams(cache, beam_size, cache_offset)
    start = _start(expanded, batch_size, beam_size, max_decode_len, start_id)
    tokens, scores = chosen_rule.finish(lax.while_loop(is_open, advance, start))
    # A place without a sequence has score -inf; its tokens are made 0, as the module's text
    # promises.
    tokens = jnp.where(jnp.isfinite(scores)[..., None], tokens, 0)
    return Decoded(tokens[:, :num_return], scores[:, :num_return])


def _start(cache, batch_size, beam_size, max_decode_len, start_id):
    no_scores = jnp.full((batch_size, beam_size), -jnp.inf, jnp.float32)
    no_tokens = jnp.zeros((batch_size, beam_size, max_decode_len), jnp.int32)
    return _State(
        step=jnp.int32(0),
        live_tokens=no_tokens,
        # All beams start from the same prefix, so all but one are switched off.
        live_scores=no_scores.at[:, 0].set(0.0),
        last=_start_ids(start_id, batch_size * beam_size).reshape(batch_size, beam_size),
        bank_tokens=no_tokens,
        bank_scores=no_scores,
        closed=jnp.zeros((batch_size,), bool),
        cache=cache,
    )


def _extend(state, logits, eos_id):
    """The 2K best one-token continuations of the open beams, as `_Candidates`."""
    batch_size, beam_size, max_decode_len = state.live_tokens.shape
    vocab_size = logits.shape[-1]
    # float32 whatever the model's dtype: sums over many steps decide between near ties.
    log_probs = jax.nn.log_softmax(logits.astype(jnp.float32))
    scores = log_probs.reshape(batch_size, beam_size, vocab_size) + state.live_scores[..., None]
    wanted = 2 * beam_size
    # With a tiny vocabulary there are fewer than 2K continuations; the rest is padding at -inf.
    available = min(wanted, beam_size * vocab_size)
    # One `top_k` over beams and vocabulary together, [B, K * V] -> [B, 2K].
    top, flat = lax.top_k(scores.reshape(batch_size, beam_size * vocab_size), available)
    padding = ((0, 0), (0, wanted - available))
    top = jnp.pad(top, padding, constant_values=-jnp.inf)
    flat = jnp.pad(flat, padding)
    parents, last = flat // vocab_size, (flat % vocab_size).astype(jnp.int32)
    tokens = jnp.take_along_axis(state.live_tokens, parents[..., None], axis=1)
    at_step = jnp.arange(max_decode_len) == state.step
    tokens = jnp.where(at_step, last[..., None], tokens)
    return _Candidates(top, tokens, last, parents, last == eos_id)


def _keep_open(candidates, beam_size):
    """The K best candidates that have not ended, and the beams they continue `[B, K]`."""
    # 2K candidates hold at least K that have not ended: each beam has one EOS continuation.
    scores = jnp.where(candidates.ended, -jnp.inf, candidates.scores)
    # Candidates are sorted already: a stable sort by "is not open" keeps their order.
    order = jnp.argsort(jnp.isneginf(scores), axis=1, stable=True)[:, :beam_size]
    open_ones = _Candidates(
        jnp.take_along_axis(scores, order, axis=1),
        jnp.take_along_axis(candidates.tokens, order[..., None], axis=1),
        jnp.take_along_axis(candidates.last, order, axis=1),
        jnp.take_along_axis(candidates.parents, order, axis=1),
        jnp.take_along_axis(candidates.ended, order, axis=1),
    )
    return open_ones, open_ones.parents


def _check_sizes(batch_size, beam_size, max_decode_len, num_return):
    if min(batch_size, beam_size, max_decode_len) < 1:
        raise ValueError(
            "batch_size, beam_size and max_decode_len must be at least 1, "
            f"got {batch_size}, {beam_size} and {max_decode_len}"
        )
    if not 1 <= num_return <= beam_size:
        raise ValueError(f"num_return must be in 1..beam_size={beam_size}, got {num_return}")


def _map_rows(function, tree, cache_offset, constant_leaves=()):
    """Applies `function(leaf, axis of the rows)` to the leaves that have one row per sequence."""
    skipped = _SHARED_LEAVES + tuple(constant_leaves)

    def visit(path, leaf):
        # Dictionary keys have `.key`, and fields of named tuples `.name`.
        names = tuple(str(getattr(key, "key", getattr(key, "name", ""))) for key in path)
        axis = cache_offset(names) if callable(cache_offset) else cache_offset
        has_rows = jnp.ndim(leaf) > axis and (names[-1] if names else "") not in skipped
        return function(leaf, axis) if has_rows else leaf

    return jax.tree_util.tree_map_with_path(visit, tree)
