"""Hides TensorFlow's start-up messages while it is imported; other output passes.

Its C++ code writes them to the file descriptor before any setting of its log level counts.
"""

import contextlib
import logging
import os
import re
import sys
import threading
from collections.abc import Iterator

_GREETINGS = re.compile(
    r"WARNING: All log messages before absl::InitializeLog\(\) is called are written to STDERR"
    r"|[IW]\d{4} .*(cudart_stub|cuda_dso_loader|port\.cc|cpu_feature_guard|computation_placer"
    r"|Could not find cuda drivers|Unable to register cu\w+ factory).*"
    r"|To enable the following instructions: .*rebuild TensorFlow.*"
)
# SeqIO says so of every task that keeps its texts beside the tokens, which is the usual way.
_REMOVED = re.compile(r"Features not in `features_length` will be removed during packing: \{(.*)\}")


@contextlib.contextmanager
def quiet_imports() -> Iterator[None]:
    """Context manager that filters TensorFlow's start-up messages out of stderr, line by line."""
    logging.getLogger("absl").addFilter(_is_news)  # adding twice is once
    if "tensorflow" in sys.modules:
        yield
        return
    sys.stderr.flush()
    real, (out, into) = os.dup(2), os.pipe()
    os.dup2(into, 2)
    os.close(into)
    reader = threading.Thread(target=_forward, args=(out, real), daemon=True)
    reader.start()
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(real, 2)  # closes the pipe's last end: the reader comes to an end
        reader.join(timeout=1.0)  # a process that was started meanwhile may hold the end still


def is_greeting(line: str) -> bool:
    """Whether a line is one of those that TensorFlow writes at every start."""
    return _GREETINGS.fullmatch(line.rstrip("\n")) is not None


def _forward(out: int, real: int) -> None:
    with os.fdopen(out, "rb", buffering=0) as lines, os.fdopen(real, "wb", buffering=0) as to:
        for line in lines:
            if not is_greeting(line.decode(errors="replace")):
                to.write(line)


def _is_news(record: logging.LogRecord) -> bool:
    match = _REMOVED.fullmatch(record.getMessage())
    names = match[1].split(", ") if match else [""]
    return not all(name.strip("'\"").endswith("_pretokenized") for name in names)
