"""The page of a figure or an analysis of the paper: Markdown, its images and its numbers."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ckl_jax.analysis.render_table import TableCell, markdown, print_cells
from ckl_jax.files import write_file, write_json


@dataclasses.dataclass
class Section:
    """A table or an image, and sentences about it.

    Attributes:
      title: its heading.
      headers, rows: of the table; no rows, no table.
      png: the image.
      notes: sentences below.
    """

    title: str
    headers: Sequence[str] = ()
    rows: Sequence[Sequence[TableCell]] = ()
    png: bytes | None = None
    notes: Sequence[str] = ()


def text_row(*values: Any) -> list[TableCell]:
    """Cells of a row: text as it is, numbers with two decimals, "–" for None."""
    return [TableCell(_text(value)) for value in values]


def _text(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value).replace("|", "\\|")


def write(
    name: str, title: str, sections: Sequence[Section], numbers: Mapping[str, Any], out: Path
) -> Path:
    """Writes NAME.md, NAME.json and an image for each section that has one; prints the tables.

    Args:
      name: such as "ckl/figure2"; "/" becomes "-" in names of files.
      title: what it shows.
      sections: in order.
      numbers: for NAME.json.
      out: folder.

    Returns:
      The path of NAME.md.
    """
    stem = name.replace("/", "-")
    text = [f"# {name}: {title}\n"]
    images = [section for section in sections if section.png]
    for section in sections:
        text.append(f"## {section.title}\n")
        if section.png:
            image = f"{stem}.png" if len(images) == 1 else f"{stem}-{images.index(section) + 1}.png"
            write_file(out / image, section.png)
            text.append(f"![{section.title}]({image})\n")
            print(f"{section.title}: {out / image}", flush=True)
        if section.rows:
            text.append(markdown(section.headers, section.rows))
            print_cells(section.headers, section.rows, title=f"{name}: {section.title}")
        unnamed = not (section.png or section.rows)
        for note in section.notes:
            text.append(f"- {note}")
            print(f"{section.title}: {note}" if unnamed else note, flush=True)
        if section.notes:
            text.append("")
    write_json(out / f"{stem}.json", dict(numbers))
    path = out / f"{stem}.md"
    write_file(path, "\n".join(text).rstrip("\n") + "\n")
    return path
