"""`ckl update`: turns new text into an updated model with evidence, month after month.

Begin with `job.py`, which runs one update. `registry.py` has the folder of all updates,
`new_text.py` what is new, `items.py` the probes made of it, `evidence.py` what a model says to
them, `scores.py` the scores that the verdict is on.
"""
