"""SVG of a matplotlib figure for a page, whose points and bars show their values on hover."""

import io
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

import numpy as np

from ckl_jax.errors import CONTROL

_SVG = "http://www.w3.org/2000/svg"
# Colours of axes and text, which follow the page's light or dark mode.
_OF_PAGE = {
    "#000000": "currentColor",
    "#ffffff": "var(--page, #ffffff)",
    "#e4e4e4": "var(--line, #e4e4e4)",  # the grid
}


def svg(figure: Any, kind: str = "wide") -> str:
    """The figure as an `<svg>` element for an HTML page.

    Lines with markers, scattered points and bars that have a label get a `<title>` each, such as
    "LoRA: epoch 3, EM (%) 41.2", which browsers show on hover and screen readers read. Black, white
    and the grid's grey become the colours of the page; all others are the same in its dark mode.

    Args:
      kind: class of the element: "narrow" is shown on narrow pages alone, "wide" on others.
    """
    texts = {}
    for i, (artist, values) in enumerate(_labelled(figure)):
        artist.set_gid(f"values_{i}")
        texts[f"values_{i}"] = values
    drawn = io.BytesIO()
    figure.savefig(drawn, format="svg", transparent=True, metadata={"Date": None})
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")
    root = ElementTree.fromstring(CONTROL.sub("", drawn.getvalue().decode()))
    for extra in root.findall(f"{{{_SVG}}}metadata"):
        root.remove(extra)
    root.set("class", kind)
    root.set("fill", "currentColor")  # matplotlib leaves black out of texts and areas
    for element in root.iter():
        for color, name in _OF_PAGE.items():
            if color in (look := element.get("style", "")):
                element.set("style", look.replace(color, name))
    for group in root.iter(f"{{{_SVG}}}g"):
        values = texts.get(group.get("id"), ())
        points = [group] if len(values) == 1 else list(group.iter(f"{{{_SVG}}}use"))
        # Points beyond the axes are not drawn: which text is whose is not known then.
        if len(points) == len(values):
            for point, value in zip(points, values, strict=True):
                ElementTree.SubElement(point, f"{{{_SVG}}}title").text = CONTROL.sub("", value)
    return ElementTree.tostring(root, encoding="unicode")


def _labelled(figure: Any) -> Iterator[tuple[Any, list[str]]]:
    """(artist, a text for each of its points) of whatever a legend or its `hover` names."""
    for ax in figure.axes:
        for artist in (*ax.lines, *ax.collections):
            label = getattr(artist, "hover", "") or str(artist.get_label())
            if not label.startswith("_"):
                points = artist.get_xydata() if artist in ax.lines else artist.get_offsets()
                known = np.asarray(points, float)
                known = known[np.isfinite(known).all(1)]
                yield artist, [f"{label}: {_at(ax.xaxis, x)}, {_at(ax.yaxis, y)}" for x, y in known]
        for bars in ax.containers:
            label = str(bars.get_label())
            for bar in getattr(bars, "patches", ()):
                x, y, width, height = bar.get_x(), bar.get_y(), bar.get_width(), bar.get_height()
                along, across = (ax.xaxis, width), (ax.yaxis, y + height / 2)
                if bars.orientation == "vertical":
                    along, across = (ax.yaxis, height), (ax.xaxis, x + width / 2)
                name = "" if label.startswith("_") else f"{label}, "
                yield bar, [f"{name}{_at(*across)}: {_at(*along)}"]


def _at(axis: Any, value: float) -> str:
    """A position as text: the nearest label of an axis with names, else the axis and the number."""
    from matplotlib.ticker import FixedFormatter, FuncFormatter

    if names := getattr(axis, "names", None):  # of more positions than have a tick
        return names[min(names, key=lambda position: abs(position - value))]
    if isinstance(axis.get_major_formatter(), FixedFormatter | FuncFormatter):
        nearest = int(np.abs(np.asarray(axis.get_ticklocs()) - value).argmin())
        return axis.get_ticklabels()[nearest].get_text()
    return f"{axis.get_label_text()} {value:,.4g}".strip()
