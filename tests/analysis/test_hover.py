"""Points and bars of a page's figures say their values."""

import re

from matplotlib.figure import Figure

from ckl_jax.analysis import hover


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


def test_points_beyond_the_axes_leave_a_line_without_values():
    figure = Figure()
    axes = figure.subplots()
    axes.plot([0, 1, 2], [1, 2, 3], "o", label="LoRA")
    axes.set_xlim(1.99, 2.01)
    assert _titles(figure) == []
