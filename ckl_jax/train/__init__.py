"""Training, evaluation and inference: everything behind `t5x train|eval|infer|precompile`.

Begin with `train.py`. `step.py` is the jitted step; `setup.py` derives shapes and parameters;
`configs.py` holds the records that gin files bind.
"""

import sys
import types
from typing import Any


class _Callable(types.ModuleType):
    """`ckl_jax.train(...)` is `jobs.train`, also once this package of the same name is imported."""

    def __call__(self, *arguments: Any, **macros: Any) -> Any:
        from ckl_jax import jobs

        return jobs.train(*arguments, **macros)


sys.modules[__name__].__class__ = _Callable
