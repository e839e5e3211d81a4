"""A job and its parts, for the tests of gin files."""

from ckl_jax.errors import UserError


class Model:
    def __init__(self, width: int, dropout: float = 0.1):
        self.width, self.dropout = width, dropout


def train(*, model: Model, model_dir: str, total_steps: int, note: str = "none"):
    if total_steps < 0:
        raise UserError(f"total_steps is {total_steps}; it must be positive.")
    return model.width, model.dropout, model_dir, total_steps, note


def opened():
    return open("/no/such/file", encoding="utf-8")
