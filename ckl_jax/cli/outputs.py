"""What a command prints: all of it, errors only (--quiet), or its result as JSON (--json)."""

import contextlib
import io
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from ckl_jax.errors import CONTROL
from ckl_jax.files import without_nan

FLAGS = ("--quiet", "--json")
HELP = "With --quiet a command prints errors only, with --json its result as JSON."


class _Kept(io.StringIO):
    """Text that goes to standard error and is kept."""

    def write(self, text: str) -> int:
        sys.stderr.write(text)
        return super().write(text)


def show(command: Callable[[], Any], quiet: bool, as_json: bool) -> int:
    """Runs a command and returns its exit code.

    Args:
      command: returns an exit code, its result as a dict, both, or None; see `result_of`.
      quiet: of --quiet.
      as_json: of --json: what the command prints goes to standard error, and into "output".
    """
    with contextlib.ExitStack() as stack:
        kept = _Kept() if as_json else None
        if quiet:
            null = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
            stack.enter_context(contextlib.redirect_stderr(null))
        if quiet or as_json:
            stack.enter_context(contextlib.redirect_stdout(kept or null))
        result = result_of(command())
    if kept:
        document = {**result, "output": kept.getvalue().splitlines()}
        shown = json.dumps(without_nan(document, _as_json), ensure_ascii=False)
        print(CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", shown))  # JSON's escapes
    return result["exit_code"]


def result_of(returned: int | dict | tuple | None) -> dict[str, Any]:
    """The result of a command, with its `exit_code`."""
    if isinstance(returned, dict):
        return {"exit_code": 0, **returned}
    code, result = returned if isinstance(returned, tuple) else (returned or 0, {})
    return {"exit_code": code, **result}


def _as_json(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)
