"""Sections of reports, rendered as HTML, as Markdown and to the terminal."""

import base64
import dataclasses
import functools
import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from ckl_jax import checks
from ckl_jax.errors import printable
from ckl_jax.files import finite, os_errors, refuse_existing, write_file, write_json

_WIDE = 160  # columns where the output goes to no terminal
_PACKAGE = Path(__file__).parents[1]
_SIGN = b'<meta name="generator" content="ckl_jax">'  # of a page from `page.html`


@dataclasses.dataclass(frozen=True)
class Cell:
    """A cell of a table."""

    text: str
    below: str = ""  # text below it, such as an interval
    mark: str = ""  # sign after it
    rank: int = 0  # 1 is bold, 2 underlined
    color: str = ""  # of a dot before what is below, in HTML


def cell(value: Any) -> Cell:
    """A table cell: two decimals for numbers, thousands separators for counts, "–" for None."""
    if isinstance(value, Cell):
        return value
    if isinstance(value, float):
        return Cell(two(value))
    text = f"{value:,}" if isinstance(value, int) else "–" if value is None else str(value)
    return Cell(text)


def two(value: float | None) -> str:
    """Two decimals; "–" for None."""
    return "–" if value is None else f"{value:z.2f}"


def whole(value: float | None) -> str:
    """No decimals; "–" for None."""
    return "–" if value is None else f"{value:z,.0f}"


# Seconds of a clock on the wall say nothing where runs share cores.
COSTS = ("TFLOP", "CPU s")


def costs(flops: float | None, cpu_seconds: float | None) -> list[str]:
    """The cells of `COSTS`: FLOPs of matrix products and CPU time of training."""
    short = cpu_seconds is not None and 0 < cpu_seconds < 1
    seconds = f"{cpu_seconds:.1g}" if short else whole(cpu_seconds)
    return ["–" if flops is None else f"{flops / 1e12:.3g}", seconds]


def ratio(value: float | None) -> str:
    """Two decimals; "no gain" for None."""
    return "no gain" if value is None else f"{value:.2f}"


def compact(count: int | None) -> str:
    """A number of parameters with its unit, such as 1.31M; "–" for None."""
    if count is None:
        return "–"
    for size, unit in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:.3g}{unit}"
    return str(count)


def estimate(
    x: Mapping[str, Any] | None,
    form: Callable[[Any], str] = two,
    dash: str = "–",
    value: str = "value",
    **looks: Any,
) -> Cell:
    """A cell of {"value", "low", "high"}, the interval below; "–" for None or no number.

    Args:
      form: writes one of them, or None.
      dash: between the ends of the interval.
      value: key of the value.
    """
    # x != x is true of NaN alone; None is handled below as "no gain".
    if x is None or x[value] != x[value]:
        return Cell("–")
    if x[value] is None or x["low"] != x["low"]:
        return Cell(form(x[value]), **looks)
    return Cell(form(x[value]), f"{form(x['low'])}{dash}{form(x['high'])}", **looks)


@dataclasses.dataclass(frozen=True)
class Section:
    """A figure, a table, sentences and subsections; empty ones are not rendered."""

    title: str = ""
    # headers, rows: of the table; values become cells, see `cell`
    headers: Sequence[str] = ()
    rows: Sequence[Sequence[Any]] = ()
    notes: Sequence[str] = ()
    png: bytes | None = None
    code: str = ""  # text that is shown as it is, folded
    sections: Sequence["Section"] = ()  # below this one
    anchor: str = ""  # name of its link, of a section of the page
    kind: str = "numbers"  # of table, in HTML: "numbers", "plain" or "examples"
    wide: Collection[str] = ()  # headers of columns that a narrow terminal leaves out

    def __post_init__(self) -> None:
        # Normalised once here, so that the three writers see cells only.
        object.__setattr__(self, "rows", [list(map(cell, row)) for row in self.rows])
        object.__setattr__(self, "sections", [s for s in self.sections if s])
        object.__setattr__(self, "notes", [note for note in self.notes if note])

    def __bool__(self) -> bool:
        return bool(self.rows or self.notes or self.png or self.code or self.sections)

    @property
    def image(self) -> str:
        """The figure as an element of a page: SVG where there is one."""
        from markupsafe import Markup

        if svg := getattr(self.png, "svg", None):
            return Markup(svg)
        data = base64.b64encode(self.png).decode("ascii")
        return Markup('<img alt="{}" src="data:image/png;base64,{}">').format(self.title, data)

    def markdown(self, level: int = 3, images: Mapping[bytes, str] | None = None) -> str:
        """The section in Markdown.

        Args:
          images: {PNG: its file}.
        """
        parts = [f"{'#' * level} {self.title}"] if self.title else []
        if self.png and images:
            parts.append(f"![{self.title}]({images[self.png]})")
        if self.rows:
            rule = "|" + " --- |" + " ---: |" * (len(self.headers) - 1)
            rows = [self.headers, *([_markdown(c) for c in row] for row in self.rows)]
            lines = ["| " + " | ".join(row) + " |" for row in rows]
            parts.append("\n".join([lines[0], rule, *lines[1:]]))
        parts += self.notes
        parts += [section.markdown(level + 1, images).rstrip("\n") for section in self.sections]
        return "\n\n".join(parts) + "\n"

    def text(self) -> list[str]:
        """The table as lines of plain text, first column left-aligned."""
        rows = [list(self.headers), *([c.text for c in row] for row in self.rows)]
        first, *widths = (max(map(len, column)) for column in zip(*rows, strict=True))
        return ["  ".join([row[0].ljust(first), *map(str.rjust, row[1:], widths)]) for row in rows]

    def show(self, console: Any = None, name: str = "") -> None:
        """Prints the table and the notes.

        A narrow terminal gets nothing below the numbers. What is still too wide is broken between
        words but never within one: lines are longer than the terminal then.
        """
        console = console or terminal()
        title = ": ".join(filter(None, (name, self.title)))
        if self.rows:
            drawn, width = self._drawn(title), console.width
            if _widths(console, drawn)[1] > width:
                drawn = self._drawn(title, narrow=True)
                _shrink(console, drawn, width)
            # As wide as the table needs, lest numbers be cut off.
            console.width = max(width, _widths(console, drawn)[1])
            console.print(drawn)
            console.width = width
        for note in self.notes:
            named = f"{title}: {note}" if title and not (self.rows or self.png) else note
            print(printable(named), flush=True)
        for section in self.sections:
            section.show(console, name)

    def _drawn(self, title: str, narrow: bool = False) -> Any:
        from rich.table import Table
        from rich.text import Text

        kept = [i for i, h in enumerate(self.headers) if not (narrow and h in self.wide)]
        named = {"title": Text(title, "italic"), "title_justify": "left"} if title else {}
        table = Table(header_style="bold", **named)
        for i in kept:
            table.add_column(Text(printable(self.headers[i])), justify="right" if i else "left")
        for row in self.rows:
            table.add_row(*(_terminal(row[i], narrow) for i in kept))
        return table


def _markdown(shown: Cell) -> str:
    # A pipe or a line break would end the cell in Markdown.
    text = " ".join(shown.text.replace("|", "\\|").split("\n"))
    text = {1: f"**{text}**", 2: f"<u>{text}</u>"}.get(shown.rank, text)
    star = "\\*" if shown.mark else ""
    return text + star + (f" <sub>{shown.below}</sub>" if shown.below else "")


def _terminal(shown: Cell, narrow: bool) -> Any:
    from rich.text import Text

    style = {1: "bold", 2: "underline"}.get(shown.rank, "")
    text = Text(printable(shown.text), style=style) + Text(shown.mark)
    return text + Text(f"\n{shown.below}", style="dim") if shown.below and not narrow else text


def _widths(console: Any, drawn: Any) -> tuple[int, int]:
    """The minimum width of a table or cell, without breaking words, and the natural width."""
    from rich.measure import Measurement

    # Without the console's own limit.
    measurement = Measurement.get(console, console.options.update(width=100_000), drawn)
    return measurement.minimum, measurement.maximum


def _shrink(console: Any, table: Any, width: int) -> None:
    """Narrows the columns of a table to a total width without breaking words."""
    excess = _widths(console, table)[1] - width
    for column in table.columns:
        sizes = [_widths(console, cell) for cell in (column.header, *column.cells)]
        column.min_width, column.width = (max(size) for size in zip(*sizes, strict=True))
    # A column at a time gives way: the one that can most.
    while excess > 0:
        column = max(table.columns, key=lambda column: column.width - column.min_width)
        if column.width == column.min_width:
            return
        column.width, excess = column.width - 1, excess - 1


def terminal() -> Any:
    """The terminal's console, or a wide one if the output is redirected."""
    import rich.console

    class Console(rich.console.Console):
        def on_broken_pipe(self) -> None:  # rich would end the process with exit code 1
            raise  # noqa: PLE0704 (rich calls it where the error is handled)

    console = Console()
    if not console.is_terminal:
        console.width = _WIDE
    return console


def refuse_foreign(page: Path, overwrite: bool | None, *others: str) -> None:
    """Refuses to overwrite a report that this package did not write.

    Args:
      page: HTML of the report, by which it is known whose the files are.
      overwrite: whether anything may be written over; None for a command without the option.
      *others: names of the files beside it.

    Raises:
      UserError: one of them is there, and the page is not ours; or their folder is a file.
    """
    checks.require_folder(**{"--out": page.parent})
    if page.is_file():
        with os_errors(page, "read"), open(page, "rb") as f:
            if _SIGN in f.read(4096):
                return
    for name in (page.name, *others):
        refuse_existing(page.parent / name, overwrite)


def write_page(
    path: Path, title: str, sections: Sequence[Section], lead: Sequence[str] = ()
) -> Path:
    """Writes the sections as one self-contained HTML file; returns `path`.

    Args:
      sections: each with an `anchor`.
      lead: sentences below the title.
    """
    shown = {
        "title": title,
        "sections": list(filter(None, sections)),
        "lead": list(filter(None, lead)),
    }
    write_file(path, render("analysis/page.html", "analysis/tables.js", **shown))
    return path


def write_markdown(
    name: str,
    title: str,
    sections: Sequence[Section],
    numbers: Mapping[str, Any],
    out: Path,
    lead: Sequence[str] = (),
    below: Sequence[Section] = (),
) -> Path:
    """Writes NAME.md, NAME.html, NAME.json and an image per figure; prints the tables.

    Args:
      name: such as "ckl/figure2"; "/" becomes "-" in names of files.
      numbers: for NAME.json.
      lead: sentences below the title.
      below: sections that the page has besides, such as all facts.

    Returns:
      The path of NAME.md.
    """
    stem = name.replace("/", "-")
    images: dict[bytes, str] = {}
    drawn = [section for section in sections if section.png]
    for i, section in enumerate(drawn, 1):
        images[section.png] = f"{stem}.png" if len(drawn) == 1 else f"{stem}-{i}.png"
        write_file(out / images[section.png], section.png)
        print(f"{section.title}: {out / images[section.png]}", flush=True)
    write_json(out / f"{stem}.json", finite(dict(numbers)))
    text = [section.markdown(2, images) for section in sections]
    path = out / f"{stem}.md"
    # Questions of strangers' files may hold HTML, which Markdown would take for its own.
    said = (sentence.replace("<", "&lt;") + "\n" for sentence in lead)
    write_file(path, "\n".join([f"# {name}: {title}\n", *said, *text]))
    for section in sections:
        section.show(name=name)
    shown = enumerate([*sections, *below])
    parts = [dataclasses.replace(s, anchor=f"part-{i}") for i, s in shown]
    write_page(path.with_suffix(".html"), f"{name}: {title}", parts, lead)
    return path


@functools.cache
def _templates() -> Any:
    import jinja2

    # Imported late; autoescape, because answers of models may hold any text.
    loader = jinja2.FileSystemLoader(_PACKAGE)
    return jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)


def render(template: str, script: str, **values: Any) -> str:
    """An HTML page, `printable`; values are escaped, except those of `markupsafe.Markup`.

    Args:
      template: file below `ckl_jax`; its Content Security Policy allows no connection, and by its
        hash this script alone, so that text of an item cannot become one.
      script: file below `ckl_jax`.
      **values: what the template names.
    """
    from markupsafe import Markup

    text = (_PACKAGE / script).read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    values["script"] = {"text": Markup(text), "hash": f"sha256-{digest}"}
    return printable(_templates().get_template(template).render(values))
