"""LM-PUB-QUIZ (Ploner et al. 2024): ranking the answers of a relational dataset (BEAR).

Begin with `probe.py` (`ckl probe bear`), then `ranking.py` (statements -> scores) and `scorers.py`.
`knowledge_stream.py` is the paper's monitoring during training.
"""
