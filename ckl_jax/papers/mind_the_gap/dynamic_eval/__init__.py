"""Dynamic evaluation: scores each chunk of a stream, then trains on it.

Begin with `dynamic_eval.py` (`t5x dynamic_eval`), then `step.py`, the compiled step.
"""
