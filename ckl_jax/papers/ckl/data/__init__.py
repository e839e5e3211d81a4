"""CKL's corpora and probes from dated facts and text: begin with `benchmark.py`."""
