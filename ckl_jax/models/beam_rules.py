"""Rules of beam search: scores of finished beams, and the condition to stop. See `decoding.py`.

A rule has three functions. `bank_scores(candidates, step)` gives the final score `[B, C]` of every
candidate that finishes at this step, and `-inf` to the others. `is_closed(state, candidates)` says
for which examples `[B]` nothing better can come, after the step's finished sequences were banked.
`finish(state)` gives tokens `[B, K, L]` and scores `[B, K]` to return, best first.

`candidates` and `state` are `decoding.py`'s records: `C = 2K` candidates sorted by the sum of their
log probabilities; `state.step` tokens in an open beam; `-inf` marks an empty place.
"""

import dataclasses

import jax.numpy as jnp
from jax import lax

RULES = ("t5x", "hf")


def best(scores, tokens, count):
    """The `count` best of `[B, M]` scored sequences `[B, M, L]`: tokens and scores, best first."""
    # [B, count] each; `top_k` sorts in descending order, and ties keep the earlier index.
    top, order = lax.top_k(scores, count)
    return jnp.take_along_axis(tokens, order[..., None], axis=1), top


@dataclasses.dataclass(frozen=True)
class T5XRule:
    """Brevity penalty `((5 + n) / 6)**alpha` over `n` tokens with EOS, and T5X's stop rule."""

    alpha: float
    max_decode_len: int

    def _penalty(self, length):
        return ((5.0 + length) / 6.0) ** self.alpha

    def bank_scores(self, candidates, step):
        # `step` tokens came before; this one, EOS, is counted as T5X counts it.
        scores = candidates.scores / self._penalty(jnp.float32(step) + 1.0)
        return jnp.where(candidates.ended, scores, -jnp.inf)

    def is_closed(self, state, candidates):
        # The bound is T5X's: one position longer than any sequence can get.
        bound = state.live_scores[:, 0] / self._penalty(self.max_decode_len + 1.0)
        # The worst of K finished sequences already beats what the best open beam can still reach.
        return state.bank_scores[:, -1] > bound

    def finish(self, state):
        # As in T5X: with no finished sequence at all, the open beams are returned unnormalised.
        nothing_ended = ~jnp.isfinite(state.bank_scores[:, 0])
        tokens = jnp.where(nothing_ended[:, None, None], state.live_tokens, state.bank_tokens)
        return tokens, jnp.where(nothing_ended[:, None], state.live_scores, state.bank_scores)


@dataclasses.dataclass(frozen=True)
class HFRule:
    """Mean log probability over `n**length_penalty` without EOS, as of transformers 4.12.

    There `n` counts what the decoder was given to begin with: one start token, or the prompt of a
    decoder alone, its padding included.
    """

    length_penalty: float
    early_stopping: bool
    prompt_length: int = 1

    def bank_scores(self, candidates, step):
        # C = 2K.
        beam_size = (candidates.scores.shape[1] + 1) // 2
        # transformers 4.12 skips an EOS candidate whose rank is K or worse
        # (`generation_beam_search.py`).
        ranked_in = jnp.arange(candidates.scores.shape[1]) < beam_size
        scores = candidates.scores / self._length(step)
        return jnp.where(candidates.ended & ranked_in[None], scores, -jnp.inf)

    def _length(self, step):
        # `step` tokens and what came before them: the start token, or a prompt.
        return (jnp.float32(step) + self.prompt_length) ** self.length_penalty

    def is_closed(self, state, candidates):
        worst = state.bank_scores[:, -1]
        if self.early_stopping:
            return jnp.isfinite(worst)
        # transformers divides by the length before this step's token, which `state.step` counts
        # already.
        best_open = candidates.scores[:, 0] / self._length(state.step - 1)
        return jnp.isfinite(worst) & (worst >= best_open)

    def finish(self, state):
        open_scores = state.live_scores / self._length(state.step)
        # Examples that closed earlier keep their finished sequences; only the others, stopped by
        # the length limit, let their open beams compete.
        open_scores = jnp.where(state.closed[:, None], -jnp.inf, open_scores)
        return best(
            jnp.concatenate([state.bank_scores, open_scores], axis=1),
            jnp.concatenate([state.bank_tokens, state.live_tokens], axis=1),
            state.bank_scores.shape[1],
        )


def make_rule(rule, alpha, max_decode_len, length_penalty, early_stopping, prompt_length=1):
    """The rule called `'t5x'` or `'hf'`; ValueError for any other name."""
    if rule == "t5x":
        return T5XRule(alpha, max_decode_len)
    if rule == "hf":
        return HFRule(length_penalty, early_stopping, prompt_length)
    raise ValueError(f"unknown beam search rule {rule!r}; known: {', '.join(RULES)}")
