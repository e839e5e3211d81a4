"""Import and export of models (Hugging Face, PEFT, Haiku), and averages of checkpoints.

Begin with `hugging_face.py`. The arrays themselves are read and named in `ckl_jax.checkpoints`.
"""
