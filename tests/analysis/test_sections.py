"""Sections in every form: what is escaped, left out and formatted; numbers over seeds."""

import io

import pytest
import rich.console

from ckl_jax.analysis.sections import Cell, Section, estimate, ratio, write_page
from ckl_jax.analysis.seeds import over_seeds

TABLE = Section(
    "A <title>",
    ["Method", "EM [%]", "Trainable"],
    [["a|b <i>", Cell("1.00", "0.50–1.50", "*", 1), 1234], ["none", None, 0.5]],
    ["A note."],
    wide=["Trainable"],
    anchor="a",
)


def test_markdown_escapes_what_ends_a_cell():
    assert TABLE.markdown().splitlines() == [
        "### A <title>",
        "",
        "| Method | EM [%] | Trainable |",
        "| --- | ---: | ---: |",
        "| a\\|b <i> | **1.00**\\* <sub>0.50–1.50</sub> | 1,234 |",
        "| none | – | 0.50 |",
        "",
        "A note.",
    ]


def test_html_is_escaped_and_empty_sections_are_left_out(tmp_path):
    hostile = Section("Below", code="</pre><script>", sections=[Section("empty", ["head"])])
    outer = Section("Outer", sections=[hostile, Section("gone")], anchor="o")
    path = write_page(tmp_path / "p.html", "<T>", [TABLE, outer, Section("no"), None], ["L & M"])
    page = path.read_text()
    assert "<title>&lt;T&gt;</title>" in page and "L &amp; M" in page
    assert "<td>a|b &lt;i&gt;</td>" in page and "<script>" not in page
    assert '<b>1.00</b>*<span class="below">0.50–1.50</span>' in page
    assert "gone" not in page and "empty" not in page and ">no<" not in page


def test_a_narrow_terminal_gets_no_intervals_and_not_all_columns():
    def shown(width):
        console = rich.console.Console(width=width, file=io.StringIO())
        TABLE.show(console)
        return console.file.getvalue()

    assert "0.50–1.50" in shown(60) and "Trainable" in shown(60) and "EM [%]" in shown(60)
    assert "0.50–1.50" not in shown(25) and "Trainable" not in shown(25) and "1.00*" in shown(25)


@pytest.mark.parametrize("width", [80, 40, 10])
def test_a_narrow_terminal_breaks_no_number(width):
    headers = ["The name of a method", *(f"Probe {i}" for i in range(9))]
    rows = [["K-Adapter of two phases", *(1234.56 + i for i in range(9))]]
    console = rich.console.Console(width=width, file=io.StringIO())
    Section("Scores", headers, rows).show(console)
    text = console.file.getvalue()
    assert all(f"{1234.56 + i:.2f}" in text for i in range(9)) and "…" not in text
    assert console.width == width and "K-Adapter of two phases" not in text
    assert len({len(line) for line in text.splitlines()[1:]}) == 1


def test_estimates_have_their_interval_below_or_none():
    assert estimate({"value": 1.0, "low": 0.5, "high": 2.0}).below == "0.50–2.00"
    assert estimate(None) == estimate({"value": float("nan")}) == Cell("–")
    assert estimate({"value": 1.0, "low": float("nan"), "high": 1.0}) == Cell("1.00")
    assert estimate({"value": None, "low": 0.1, "high": None}, ratio) == Cell("no gain")


def test_numbers_over_seeds_skip_what_is_missing():
    found = over_seeds([{"a": {"x": 1.0, "y": None}}, {"a": {"x": 3.0}, "b": {"x": 5.0}}])
    assert found["a"]["x"] == {"mean": 2.0, "low": 1.0, "high": 3.0, "values": [1.0, 3.0]}
    assert found["a"]["y"]["mean"] is None and found["b"]["x"]["values"] == [None, 5.0]
