"""Training, evaluation and inference: everything behind `t5x train|eval|infer|precompile`.

Begin with `train.py`. `step.py` is the jitted step; `setup.py` derives shapes and parameters;
`configs.py` holds the records that gin files bind.
"""
