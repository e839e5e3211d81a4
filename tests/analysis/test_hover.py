"""Points and bars of a page's figures say their values."""

import re
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from ckl_jax.analysis import hover, sections
from ckl_jax.analysis.figures import few_ticks
from ckl_jax.analysis.labels import STATE_COLORS


def _titles(figure):
    return re.findall("<title>(.*?)</title>", hover.svg(figure))


def test_points_and_bars_have_their_values():
    figure = Figure()
    line, rows = figure.subplots(1, 2)
    line.plot([0, 1, 2], [5.0, float("nan"), 7.25], "o-", label="LoRA")
    line.axhline(3.0, label="_none")
    line.scatter([1], [6], label="EWC")
    line.set(xlabel="epoch", ylabel="EM (%)")
    rows.barh([0, 1], [3, 4], label="kept")
    rows.barh([0, 1], [2, 1], left=[3, 4], label="forgotten")
    rows.set_yticks([0, 1], ["LoRA", "EWC"])
    rows.set_xlabel("facts (%)")
    assert sorted(_titles(figure)) == sorted(
        [
            "LoRA: epoch 0, EM (%) 5",
            "LoRA: epoch 2, EM (%) 7.25",
            "EWC: epoch 1, EM (%) 6",
            "kept, LoRA: facts (%) 3",
            "kept, EWC: facts (%) 4",
            "forgotten, LoRA: facts (%) 2",
            "forgotten, EWC: facts (%) 1",
        ]
    )


def test_points_between_ticks_have_their_own_names():
    figure = Figure()
    ax = figure.subplots()
    (line,) = ax.plot([0, 1, 2], [5.0, 6.0, 7.0], "o-")
    line.hover = "LoRA"
    few_ticks(ax, {"2018-01": 0, "2018-02": 1, "2018-03": 2}, most=1)
    ax.set_ylabel("EM")
    assert _titles(figure) == [f"LoRA: 2018-0{i + 1}, EM {5 + i}" for i in range(3)]


@pytest.mark.filterwarnings("ignore:Glyph 27")
def test_a_control_character_of_a_label_is_left_out():
    figure = Figure()
    figure.subplots().plot([0], [5.0], "o", label="Lo\x1bRA")
    figure.legend()
    assert _titles(figure) == ["LoRA: 0, 5"] and "\x1b" not in hover.svg(figure)


def test_points_beyond_the_axes_leave_a_line_without_values():
    figure = Figure()
    axes = figure.subplots()
    axes.plot([0, 1, 2], [1, 2, 3], "o", label="LoRA")
    axes.set_xlim(1.99, 2.01)
    assert _titles(figure) == []


def test_the_page_colours_what_is_not_data_and_nothing_is_inverted():
    figure = Figure()
    axes = figure.subplots()
    axes.plot([0, 1], [1, 2], "ks", mec="white", label="Vanilla")
    axes.bar([0], [1], color=STATE_COLORS["stale"])
    axes.grid(color="#e4e4e4")
    drawn = hover.svg(figure)
    assert 'fill="currentColor"' in drawn and STATE_COLORS["stale"].lower() in drawn
    assert "stroke: currentColor" in drawn and "stroke: var(--page" in drawn
    assert "stroke: var(--line" in drawn and "#000000" not in drawn
    assert "invert(" not in (Path(sections.__file__).parent / "page.html").read_text()
