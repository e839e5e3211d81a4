"""Ways to update a model, one file each, all records of the same seams.

Begin with `method.py`, which says what the seams are, then `lora.py` for an example.
"""
