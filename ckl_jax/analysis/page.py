"""The report as one HTML file that needs nothing else: styles and figures are inside."""

import base64
import html
from collections.abc import Iterable, Sequence
from typing import Any

from ckl_jax.analysis import labels
from ckl_jax.analysis.changes import Example
from ckl_jax.analysis.render_table import TableCell, layout, legend

_CSS = """
:root { color-scheme: light dark; --text: #1c1e21; --dim: #5f6670; --line: #d9dde2;
  --page: #ffffff; --head: #f3f5f7; --link: #0a58a6; }
@media (prefers-color-scheme: dark) { :root { --text: #e6e8eb; --dim: #a2aab4; --line: #3a4049;
  --page: #15181c; --head: #20252b; --link: #79b8ff; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1180px; padding: 2rem 1.25rem 4rem; background: var(--page);
  color: var(--text); font: 16px/1.55 system-ui, -apple-system, "Segoe UI", "DejaVu Sans",
  sans-serif; }
h1 { font-size: 1.7rem; margin: 0 0 .25rem; } h2 { font-size: 1.25rem; margin: 2.6rem 0 .6rem; }
h3 { font-size: 1rem; margin: 1.4rem 0 .4rem; }
p.note, caption, figcaption { color: var(--dim); font-size: .88rem; }
nav { margin: .8rem 0; font-size: .92rem; } nav a { color: var(--link); margin-right: 1.1rem;
  white-space: nowrap; display: inline-block; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .38rem .7rem; border-bottom: 1px solid var(--line); vertical-align: top; }
th { background: var(--head); text-align: left; }
.numbers td, .numbers th { text-align: right; white-space: nowrap; }
.numbers td:first-child, .numbers th:first-child { text-align: left; }
.ci { display: block; color: var(--dim); font-size: .76rem; font-weight: normal; }
figure { margin: 1rem 0; }
figure img { max-width: 100%; background: #fff; border: 1px solid var(--line);
  border-radius: 8px; padding: .5rem; }
.examples td, .examples th { padding: .38rem .5rem; font-size: .84rem; }
.examples td { min-width: 5.9rem; overflow-wrap: anywhere; }
.examples td:first-child { min-width: 15rem; }
.state { display: block; font-size: .7rem; color: var(--dim); }
.state i { display: inline-block; width: .62rem; height: .62rem; border-radius: 2px;
  margin-right: .3rem; border: 1px solid #8884; }
pre { overflow-x: auto; background: var(--head); padding: .8rem; font-size: .8rem;
  border-radius: 8px; } summary { cursor: pointer; }
"""

_AT_INITIAL = {"right": "kept", "old answer": "stale"}  # state of a fact -> state of its colour


def page(title: str, lead: str, sections: Iterable[tuple[str, str, str]], head: str = "") -> str:
    """The document.

    Args:
      title: of the page.
      lead: HTML below the title.
      sections: (anchor, title, HTML).
      head: further HTML of its head.
    """
    sections = [s for s in sections if s[2]]
    links = "".join(f'<a href="#{anchor}">{text(name)}</a>' for anchor, name, _ in sections)
    body = "\n".join(
        f'<section id="{anchor}"><h2>{text(name)}</h2>\n{content}</section>'
        for anchor, name, content in sections
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{text(title)}</title><style>{_CSS}</style>{head}</head>\n"
        f"<body><h1>{text(title)}</h1>\n{lead}<nav>{links}</nav>\n{body}\n</body></html>\n"
    )


def text(value: Any) -> str:
    """Escapes a value for HTML."""
    return html.escape(str(value))


def note(sentence: str) -> str:
    return f'<p class="note">{text(sentence)}</p>\n'


def grid(headers: Sequence[str], rows: Iterable[Sequence[str]], kind: str = "numbers") -> str:
    """A table of cells that are HTML already."""
    head = "".join(f'<th scope="col">{text(h)}</th>' for h in headers)
    body = "\n".join("<tr>" + "".join(f"<td>{c}</td>" for c in row) + "</tr>" for row in rows)
    return (
        f'<div class="scroll"><table class="{kind}"><thead><tr>{head}</tr></thead>\n'
        f"<tbody>{body}</tbody></table></div>\n"
    )


def main_table(table: dict[str, Any]) -> str:
    """A table of `tables.compute_table` with its legend."""
    return cells(*layout(table)) + note(legend(table))


def cells(headers: Sequence[str], rows: Iterable[Sequence[TableCell]]) -> str:
    """A table of numbers with their intervals."""
    return grid(headers, [[_cell(c) for c in row] for row in rows])


def _cell(cell: TableCell) -> str:
    content = text(cell.text)
    if cell.rank:
        tag = "b" if cell.rank == 1 else "u"
        content = f"<{tag}>{content}</{tag}>"
    below = f'<span class="ci">{text(cell.interval)}</span>' if cell.interval else ""
    return content + cell.mark + below


def figure(title: str, caption: str, png: bytes) -> str:
    """A figure with the PNG inside the page."""
    data = base64.b64encode(png).decode("ascii")
    return (
        f'<figure><img alt="{text(title)}" src="data:image/png;base64,{data}">'
        f"<figcaption>{text(caption)}</figcaption></figure>\n"
    )


def examples(names: Sequence[str], chosen: Sequence[Example]) -> str:
    """Tables of predictions, one for each probe; `names` are the models'."""
    parts = []
    for probe, title in dict.fromkeys((e.probe, e.title) for e in chosen):
        rows = [
            [_question(e), *map(_prediction, e.predictions)] for e in chosen if e.probe == probe
        ]
        head = ["Question and answer", *names]
        parts.append(f"<h3>{text(title)}</h3>" + grid(head, rows, "examples"))
    return "".join(parts)


def _question(example: Example) -> str:
    blanked = example.question.replace("<extra_id_0>", "____")
    return f"{text(blanked)}<br><b>{text(example.answer)}</b>"


def _prediction(prediction: tuple[str, str]) -> str:
    answer, state = prediction
    if not state:
        return text(answer)
    color = labels.STATE_COLORS[_AT_INITIAL.get(state, state)]
    badge = f'<span class="state"><i style="background:{color}"></i>{text(state)}</span>'
    return f"{text(answer) or '(nothing)'}{badge}"


def groups(kind: str, names: Sequence[str], rows) -> str:
    """A table of `changes.relation_table` or `date_table`; `kind` heads its first column."""
    cells = [
        [text(name), f"{n:,}", *("–" if v is None else f"{v:.1f}" for v in values)]
        for name, n, values in rows
    ]
    return grid([kind, "Items", *names], cells)
