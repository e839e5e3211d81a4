"""Output that somebody stops reading, as `head` does."""

import subprocess
import sys


def test_a_reader_that_has_seen_enough_is_no_error():
    code = (
        "import sys; from ckl_jax.cli import ckl; ckl._parser = lambda: P();"
        "P = type('P', (), {'parse_args': lambda s, a: type('A', (), {'run': staticmethod("
        "lambda a: print('line\\n' * 100_000))})()});"
        "sys.exit(ckl.main([]))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() == 0
