"""Settings of the whole suite. They must precede the first import of jax."""

import os

# Toy models compile for longer than they run: compile fast instead of well.
_FAST_COMPILE = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_FAST_COMPILE}".strip()
os.environ.setdefault("JAX_PLATFORMS", "cpu")
