"""Sections in every form: what is escaped, left out and formatted; numbers over seeds."""

import io

import pytest
import rich.console

from ckl_jax.analysis.report import find_runs, write_report
from ckl_jax.analysis.sections import Cell, Section, estimate, ratio, write_page
from ckl_jax.analysis.seeds import over_seeds
from tests.browser import Browser

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
    assert "<td>a|b &lt;i&gt;</td>" in page and page.count("<script>") == 1  # our own
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


@pytest.mark.slow
def test_tables_are_sorted_searched_filtered_and_saved(tmp_path):
    rows = [
        [f"fact {i}", Cell(f"{(7 * i) % 30:,}", "x"), "kept" if i % 3 else "lost"]
        for i in range(30)
    ]
    rows[4][0], rows[5][0] = "=1+1", "</script><script>document.title='HACKED'</script>"
    facts = Section("Facts", ["question", "count", "state"], rows, anchor="facts")
    path = write_page(tmp_path / "p.html", "Page", [facts])
    browser = Browser(tmp_path / "profile")
    try:
        browser.open(path)
        assert browser.run("document.title") == "Page"

        def column(i):
            shown = "[...document.querySelectorAll('tbody tr')].filter((r) => !r.hidden)"
            return browser.run(f"{shown}.map((r) => r.cells[{i}].firstChild.textContent)")

        browser.click("th:nth-child(2) button")
        assert column(1) == [str(i) for i in range(30)]
        browser.click("th:nth-child(2) button")
        assert column(1)[:2] == ["29", "28"]
        browser.run(
            "(() => { const s = document.querySelector('.bar select'); s.value = '=lost';"
            "s.dispatchEvent(new Event('input', { bubbles: true })) })()"
        )
        assert set(column(2)) == {"lost"} and len(column(2)) == 10
        browser.run(
            "(() => { const s = document.querySelector('.bar input'); s.value = 'FACT 15';"
            "s.dispatchEvent(new Event('input', { bubbles: true })) })()"
        )
        assert column(0) == ["fact 15"]
        browser.run(
            "(() => { const s = document.querySelector('.bar input'); s.value = '1+1';"
            "const c = document.querySelector('.bar select'); c.value = '';"
            "s.dispatchEvent(new Event('input', { bubbles: true })) })()"
        )
        browser.click(".bar button")
        saved = browser.downloads / "facts-1.csv"
        browser.wait("new Promise((done) => setTimeout(() => done(true), 500))")
        assert saved.read_text() == "question,count,count (below),state\n'=1+1,28,x,kept\n"
        assert browser.errors() == [] and browser.requests() == []
    finally:
        browser.close()


@pytest.mark.slow
def test_numbers_are_sorted_by_value_whatever_marks_they_have(tmp_path):
    ascending = ["-64.00*", "-11.11", "0.50 (9.00)", "9.89", "41.76*", "804k / 1M", "1.38M"]
    ascending += ["2B", "–"]
    rows = [[Cell(text)] for text in reversed(ascending)]
    path = write_page(tmp_path / "p.html", "Page", [Section("Scores", ["EM"], rows, anchor="a")])
    browser = Browser(tmp_path / "profile")
    try:
        browser.open(path)
        browser.click("th button")
        shown = browser.run("[...document.querySelectorAll('tbody td')].map((c) => c.textContent)")
        assert [text.strip() for text in shown] == ascending
        browser.click("th button")
        shown = browser.run("[...document.querySelectorAll('tbody td')].map((c) => c.textContent)")
        assert [text.strip() for text in shown] == [*reversed(ascending[:-1]), "–"]
    finally:
        browser.close()


@pytest.mark.slow
def test_a_telephone_shows_the_whole_of_tables_and_figures(tmp_path, demo):
    path = write_report(find_runs([demo]), tmp_path)
    browser = Browser(tmp_path / "profile")
    try:
        for width, shown in ((390, "narrow"), (1200, "wide")):
            size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
            browser.send("Emulation.setDeviceMetricsOverride", **size)
            browser.open(path)
            outside = "[...document.querySelectorAll('td, svg')].filter((e) => "
            outside += f"e.getBoundingClientRect().right > {width}).length"
            assert browser.run(outside) == 0
            hidden = "[...document.querySelectorAll('.scroll:has(> .numbers)')].filter((e) => "
            assert browser.run(f"{hidden}e.scrollHeight > e.clientHeight).length") == 0
            visible = "[...document.querySelectorAll('svg')].filter((e) => e.clientWidth)"
            classes = browser.run(f"{visible}.map((e) => e.className.baseVal)")
            assert set(classes) == {shown}
        assert browser.run("document.querySelectorAll('table.cards').length") == 0
    finally:
        browser.close()
