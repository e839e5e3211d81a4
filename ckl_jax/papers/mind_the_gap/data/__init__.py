"""Dated text -> clean documents -> time splits: begin with `clean.py` and `time_splits.py`."""
