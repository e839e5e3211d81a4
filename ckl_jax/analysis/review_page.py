"""A page on which a person keeps, drops and edits items of probes: one HTML file, no network.

Items may be hostile. They lie in the page as JSON without "<", the script makes text nodes of them,
and a Content Security Policy allows that script alone and no connection.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ckl_jax.analysis.sections import render
from ckl_jax.errors import UserError
from ckl_jax.files import read_json

FORMAT = "ckl-review-1"
KEEP, DROP, EDIT = ACTIONS = ("keep", "drop", "edit")


def html(
    items: Sequence[Mapping[str, Any]],
    *,
    digest: str,
    name: str,
    command: str,
    actions: Sequence[str] = ACTIONS,
    sides: Mapping[str, str],
) -> str:
    """Returns the page.

    Args:
      items: what it shows of each: "key" (unique), "probe", "id", "statement" with one blank,
        "question", "answers", "old", "relation", "date", "note" and "evidence", a list of "side",
        "answer", "sentence", "date", "title", "document" and "sentences".
      digest: of the items; decisions are refused for others.
      name: of what is reviewed, for the title.
      command: that applies decisions.json.
      sides: {side of evidence: title of its column}.
    """
    from markupsafe import Markup

    data = {"format": FORMAT, "benchmark": digest, "items": items, "command": command}
    data |= {"actions": actions, "sides": list(sides)}
    # With "<" escaped, JSON cannot end its script element.
    embedded = json.dumps(data, ensure_ascii=True).replace("<", "\\u003c")
    return render(
        "analysis/review.html",
        "analysis/review.js",
        title=f"Review of {name}",
        columns=list(sides.values()),
        can_edit=EDIT in actions,
        data=Markup(embedded),
    )


def read_decisions(path: str | Path, digest: str | None = None) -> dict[str, Any]:
    """Returns {key: decision} of the file that a page exported.

    Args:
      digest: of the items that they are on; None: any.

    Raises:
      UserError: the file holds no decisions, or those of other items.
    """
    value = read_json(path)
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise UserError(f"{path} is not a file of decisions: its 'format' is not {FORMAT!r}.")
    decisions = value.get("decisions")
    if not isinstance(decisions, dict):
        raise UserError(f"{path}: 'decisions' is not a map of items to decisions.")
    if digest is not None and value.get("benchmark") != digest:
        raise UserError(
            f"{path} was exported for other items (benchmark {value.get('benchmark')!r}, here "
            f"{digest!r}); write the page again and import the file there."
        )
    return decisions


def action_of(decision: Any, where: str, actions: Sequence[str] = ACTIONS) -> str:
    """The action of a decision; `UserError` naming `where` if it is not one of `actions`."""
    action = decision.get("action") if isinstance(decision, dict) else None
    if action not in actions:
        raise UserError(f"{where}: 'action' is {action!r}; it is one of {', '.join(actions)}.")
    return action
