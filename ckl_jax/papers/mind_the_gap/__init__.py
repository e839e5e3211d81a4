"""Mind the Gap (Lazaridou et al. 2021): how perplexity grows with time, and dynamic evaluation.

Begin with `study.py` (`ckl mind-the-gap`). `data/` cleans dated text and splits it by time,
`dynamic_eval/` updates a model as it reads, `office_holder_qa.py` evaluates models on questions
of who holds an office.
"""
