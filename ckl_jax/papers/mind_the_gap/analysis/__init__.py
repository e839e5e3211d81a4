"""Staleness curves, word groups, emerging words and their report: begin with `staleness.py`."""
