"""Cached tasks (tokenised examples in memory-mapped files) and the batches made from them.

Begin with `prepare.py` (files -> cached tasks) and `cached.py` (memory-mapped tokens);
`epochs.py` orders the examples, `pipeline.py` makes the batches.
"""
