"""Checkpoints and weight files as bytes and arrays: this project's, T5X's, Hugging Face's.

Begin with `store.py` (orbax). `hf_*.py` hold tables of parameter names; `ckl_jax.convert` has the
commands that use them.
"""
