"""Documents, sentences, the names and dates in them, and vocabularies.

Begin with `documents.py` (dated text) and `vocabularies.py` (T5's; GPT-2's is `byte_level.py`,
BERT's `masked_vocabulary.py`). `spans.py` masks what the finders of `taggers.py` find.
"""
