"""A job for the tests of the command: it records its arguments."""

from ckl_jax.errors import UserError

calls = []


def train(*, model_dir: str, total_steps: int = 1, shard_id: int = 0):
    calls.append((model_dir, total_steps, shard_id))
    if model_dir == "stop":
        raise KeyboardInterrupt
    if model_dir == "bad":
        raise UserError("The disk is full.")
