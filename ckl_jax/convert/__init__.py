"""Models in and out of other formats: Hugging Face, PEFT, Haiku; and averages of checkpoints.

Begin with `hugging_face.py`. The arrays themselves are read and named in `ckl_jax.checkpoints`.
"""
