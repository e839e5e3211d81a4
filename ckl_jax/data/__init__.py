"""Text, facts and vocabularies -> cached tasks -> batches. No jax here.

`text/` reads documents and makes vocabularies, `facts/` reads facts and probe files, `tasks/` makes
cached tasks of both and batches of those. Beside them stand readers and writers of large files.
"""
