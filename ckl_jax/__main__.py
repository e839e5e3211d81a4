"""`python -m ckl_jax train ...` is `t5x train ...`."""

import sys

from ckl_jax.cli.t5x import main
from ckl_jax.parallel.processes import die_with_parent

if __name__ == "__main__":
    die_with_parent()
    sys.exit(main())
