"""The commands `t5x` and `ckl`: they parse and call. Begin with `t5x.py` and `ckl.py`."""
