"""Dumps of Wikipedia and Wikidata -> diffsets and probes (docs/dumps.md).

Begin with `diffsets.py` and `probes.py`; `algorithm1.py` and `fact_diff.py` are the paper's two
algorithms on one page and one item. `beam_*.py` run them with Apache Beam.
"""
