"""CKL's tables, figures, claims and review page: begin with `experiment_tables.py`."""
