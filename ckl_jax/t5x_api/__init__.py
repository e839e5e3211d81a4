"""T5X's names and arguments over this project's parts, for gin files written for T5X.

Such files say `from t5x import utils, partitioning, trainer, ...` and bind T5X's arguments. A
module here has the name of its counterpart in T5X and offers what gin files name of it; a few names
share one (`names.MODULES`). `names.install` lets Python find it as `t5x.<name>`. What T5X has and
this room has not is refused by name.
"""
