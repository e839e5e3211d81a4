"""TemporalWiki (Jang et al. 2022): diffsets of dumps, probes, and monthly updates of a GPT-2.

Begin with `study.py` (`ckl temporalwiki`). `data/diffsets.py` and `data/probes.py` read the dumps
of Wikipedia and Wikidata; `analysis/promotion.py` decides whether an update ships.
"""
