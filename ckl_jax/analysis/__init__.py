"""Rows of probes -> statistics, fact ledger, tables, figures and pages. No jax here.

Begin with `rows.py` (what a run wrote), then `tables.py` and `report.py`. What only one paper shows
is in that paper's `analysis/`.
"""
