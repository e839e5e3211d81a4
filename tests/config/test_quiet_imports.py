"""TensorFlow's greetings are left out; nothing else is."""

import logging
import subprocess
import sys

from ckl_jax.config.quiet_imports import is_greeting, quiet_imports

GREETINGS = (
    "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\n",
    "I0000 00:00:1795267488.314267   12241 cudart_stub.cc:31] Could not find cuda drivers on your "
    "machine, GPU will not be used.\n",
)
NEWS = "W0000 00:00:1795267488.3 12 gpu_device.cc:23] Out of memory\n"


def test_greetings_are_told_from_warnings():
    assert all(map(is_greeting, GREETINGS))
    assert not is_greeting(NEWS) and not is_greeting("UserWarning: cudart_stub\n")


def test_only_greetings_are_left_out():
    code = (
        "import os, sys; from ckl_jax.config.quiet_imports import quiet_imports\n"
        "with quiet_imports():\n"
        f"    os.write(2, {(GREETINGS[0] + NEWS + GREETINGS[1]).encode()!r})\n"
        "    print('from python', file=sys.stderr)\n"
        "    os.write(2, b'no end of line')\n"
        "print('after', file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == NEWS + "from python\nno end of lineafter\n"


def test_seqio_need_not_say_that_texts_are_left_out_of_packing():
    with quiet_imports():
        pass
    logger, records = logging.getLogger("absl"), []
    text = "Features not in `features_length` will be removed during packing: {%s}"
    handler = logging.Handler()
    handler.emit = records.append
    logger.addHandler(handler)
    try:
        logger.warning(text, "'inputs_pretokenized', 'targets_pretokenized'")
        logger.warning(text, "'inputs_pretokenized', 'answers'")
        logger.warning("Something else")
    finally:
        logger.removeHandler(handler)
    assert [r.getMessage().split("{")[-1] for r in records] == [
        "'inputs_pretokenized', 'answers'}",
        "Something else",
    ]
