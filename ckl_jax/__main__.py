"""`python -m ckl_jax train ...` is `t5x train ...`."""

import sys

from ckl_jax.cli.t5x import main

if __name__ == "__main__":
    sys.exit(main())
