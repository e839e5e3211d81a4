"""Rows of probes -> statistics, fact ledger, tables, figures and pages. No jax here.

Begin with `rows.py` (what a run wrote), then `main_table.py` and `report.py`. `sections.py` writes
tables, figures and notes of every paper as HTML, Markdown and to the terminal, `seeds.py` takes
means over seeds, `claims.py` tests what papers say. What only one paper shows is in that paper's
`analysis/`.
"""
