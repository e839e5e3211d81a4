"""The page on which a person keeps, drops and edits a probe's items: one HTML file, no network.

Items may be hostile. They lie in the page as JSON without "<", the script makes text nodes of them,
and a Content Security Policy allows that script alone and no connection.
"""

import base64
import hashlib
import json
import os
from pathlib import Path
from typing import Any

from ckl_jax.analysis.page import note, page, text
from ckl_jax.files import write_file
from ckl_jax.papers.ckl.data.review import FORMAT, Reviewable, read_evidence, read_reviewable

_SCRIPT = Path(__file__).with_name("review.js")
_CSS = """
body { max-width: none; padding-top: .8rem; } h1 { font-size: 1.2rem; }
h2, body > nav { display: none; } #bar { width: 100%; }
#head { position: sticky; top: 0; background: var(--page); z-index: 1;
  padding: .4rem 0; border-bottom: 1px solid var(--line); font-size: .9rem; }
#head > div { display: flex; flex-wrap: wrap; gap: .6rem; align-items: center; margin: .3rem 0; }
#message { color: #b35900; min-height: 1.3em; margin: 0; }
table { width: 100%; table-layout: fixed; } td { overflow-wrap: anywhere; }
th:nth-child(1) { width: 31%; } th:nth-child(2) { width: 13%; } th:nth-child(5) { width: 5.2rem; }
td small { color: var(--dim); } td p { margin: 0 0 .5rem; }
.blank, mark { background: #ffd54a66; color: inherit; } .blank { padding: 0 .3em; }
tr { scroll-margin-top: 9.5rem; }
tr.selected { outline: 2px solid var(--link); outline-offset: -2px; }
tr.keep { background: #2e9e5b22; } tr.drop { background: #d6453d22; }
tr.drop .statement { text-decoration: line-through; } tr.edit { background: #c9890022; }
.buttons button { display: block; width: 100%; margin-bottom: .25rem; } button[aria-pressed=true] {
  font-weight: bold; outline: 2px solid var(--link); }
form label { display: block; font-size: .8rem; color: var(--dim); }
textarea { width: 100%; font: inherit; } .error { color: #d6453d; }
kbd { border: 1px solid var(--line); border-radius: 3px; padding: 0 .3em; }
"""
_KEYS = (
    ("j k", "down, up"),
    ("1", "keep"),
    ("2", "drop"),
    ("3", "edit"),
    ("u", "undo"),
    ("n", "next undecided"),
    ("/", "search"),
    ("PgUp PgDn", "page"),
)
_STATES = (
    ("", "all"),
    ("undecided", "undecided"),
    ("keep", "kept"),
    ("drop", "dropped"),
    ("edit", "edited"),
    ("bare", "without evidence"),
)


def write(directory: str | os.PathLike, out: str | os.PathLike = "") -> Path:
    """Writes the page of the probes in a folder of CKL's layout.

    Args:
      directory: with probes, and perhaps `evidence.jsonl`.
      out: the page; "" is review.html in the folder.

    Returns:
      Its path.

    Raises:
      UserError: see `review.read_reviewable`; or the page cannot be written.
    """
    reviewable = read_reviewable(directory)
    path = Path(out or Path(directory) / "review.html")
    write_file(path, html(reviewable, read_evidence(directory), Path(directory).resolve().name))
    return path


def html(reviewable: Reviewable, evidence: list[dict[str, Any]], name: str) -> str:
    """The page; see `write`. `name` is what its title calls the folder."""
    data = {
        "format": FORMAT,
        "benchmark": reviewable.digest,
        "items": _items(reviewable, evidence),
    }
    script = _SCRIPT.read_text(encoding="utf-8")
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy}"><style>{_CSS}</style>'
    table = (
        "<table><thead><tr><th>Statement</th><th>Answer</th><th>Evidence in D0</th>"
        '<th>Evidence in D1</th><th></th></tr></thead><tbody id="rows"></tbody></table>'
        f'<script type="application/json" id="items-data">{_embedded(data)}</script>'
        f"<script>{script}</script>"
    )
    return page(f"Review of {name}", _controls(), [("items", "Items", table)], head)


def _digest(script: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _embedded(value: Any) -> str:
    """JSON that no HTML parser can take for the end of its element."""
    return json.dumps(value, ensure_ascii=True).replace("<", "\\u003c")


def _items(reviewable: Reviewable, evidence: list[dict[str, Any]]) -> list[dict[str, Any]]:
    sentences: dict[str, list[dict[str, Any]]] = {}
    shown = ("side", "answer", "sentence", "date", "title", "document", "sentences")
    for row in evidence:
        key = reviewable.keys.get((row["probe"], row["id"]))
        sentences.setdefault(key or "", []).append({name: row.get(name, "") for name in shown})
    return [
        {
            "key": key,
            "probe": item.probe,
            "id": item.id,
            "statement": item.input,
            "question": item.question,
            "answers": item.answers,
            "old": item.old_answers,
            "relation": item.relation,
            "date": item.meta.get("date", ""),
            "note": item.meta.get("note", ""),
            "evidence": sentences.get(key, []),
        }
        for key, item in reviewable.items.items()
    ]


def _controls() -> str:
    states = "".join(f'<option value="{value}">{text(name)}</option>' for value, name in _STATES)
    keys = " ".join(f"<kbd>{text(key)}</kbd> {text(what)}" for key, what in _KEYS)
    return (
        '<div id="head"><progress id="bar" value="0"></progress><div><b id="progress"></b>'
        '<button id="export" type="button">Export decisions</button>'
        '<label>Import <input id="import" type="file" accept=".json"></label></div>'
        '<div><select id="probe" aria-label="probe"><option value="">all probes</option></select>'
        f'<select id="state" aria-label="state">{states}</select>'
        '<select id="relation" aria-label="relation"><option value="">all relations</option>'
        '</select><input id="search" type="search" placeholder="words" aria-label="search">'
        '<button id="previous" type="button">Previous</button><span id="place"></span>'
        '<button id="next" type="button">Next</button></div>'
        f'<div><small>{keys}</small></div><p id="message" role="status"></p></div>'
        "<noscript>" + note("This page needs JavaScript.") + "</noscript>"
    )
