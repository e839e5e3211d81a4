"""Architectures, as linen modules with T5X's call signatures and parameter paths.

Begin with `t5.py` (modules) and `base.py` (batch -> loss). `layers.py` has the parts, `stack.py`
the loop or scan over layers, `decoding.py` beam search and sampling. A model knows no method.
"""
