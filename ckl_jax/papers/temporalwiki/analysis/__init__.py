"""TemporalWiki's tables, figures, report and promotion gate: begin with `results.py`."""
