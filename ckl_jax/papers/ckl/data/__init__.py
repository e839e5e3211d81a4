"""CKL's corpora and probes, built of dated facts and text: begin with `benchmark.py`."""
