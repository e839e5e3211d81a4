"""CKL: "Towards Continual Knowledge Learning of Language Models" (Jang et al. 2022).

Begin with `demo.py` (`ckl demo`) and `experiments.py` (`ckl experiment`: the paper's tables and
figures by name). `kilt.py` evaluates downstream tasks; `data/benchmark.py` builds probes of your
own facts; `analysis/claims.py` lists what the paper claims.
"""
