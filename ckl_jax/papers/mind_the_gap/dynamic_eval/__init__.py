"""Dynamic evaluation: score a chunk of the stream, then learn from it.

Begin with `dynamic_eval.py` (`t5x dynamic_eval`), then `step.py`, the compiled step.
"""
