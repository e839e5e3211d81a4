"""Measures what a model knows: answers, their metrics, and forgetting (FUAR).

Begin with `closed_book.py`; the record of a probe set is in `data/facts/probe.py`. A probe writes
rows; whatever is computed of rows is in `analysis`.
"""
