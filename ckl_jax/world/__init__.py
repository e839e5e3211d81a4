"""A simulated timeline of dated facts, and its renderings in the papers' file formats.

Begin with `timeline.py`, then `render.py` (text) and `ckl.py` (CKL's files). `wikidata.py` makes
the same of real facts.
"""
