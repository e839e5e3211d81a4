"""Facts, statements and questions about them, and the files of probe sets.

Begin with `probe.py` (the record of a probe set) and `ckl_files.py` (CKL's published files).
`relational.py` reads BEAR's layout, `dated_facts.py` facts with intervals, `templates.py` what
states them.
"""
