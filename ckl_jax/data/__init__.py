"""Text, facts and vocabularies -> cached tasks -> batches. No jax here.

Begin with `prepare.py` (files -> cached tasks) and `cached.py` (memory-mapped tokens).
`ckl_files.py` reads the published probe files, `documents.py` text.
"""
