"""Run times, as drawn."""

import numpy as np

from evomal.paper.smoothing_cost import WITH, WITHOUT, SmoothingCost, Timing, draw_smoothing_cost

NAMES = {
    WITH: ("label smoothing (torch)", "label smoothing (evomal)", "sparse label smoothing"),
    WITHOUT: ("label smoothing", "sparse label smoothing"),
}


def made_up() -> SmoothingCost:
    timings = [
        Timing(part, name, classes, 1e-6 * classes, 2e-6 * classes, 3e-6 * classes)
        for part, names in NAMES.items()
        for name in names
        for classes in (3, 100, 10_000)
    ]
    return SmoothingCost("Abacus $1_000$, 1 thread, torch 9", 5, tuple(timings))


def test_medians_in_microseconds_with_their_quartiles():
    figure = draw_smoothing_cost(made_up())
    left, right = figure.axes
    assert [axes.get_title(loc="left") for axes in (left, right)] == ["with log-softmax", "without log-softmax"]
    assert [line.get_label() for line in left.lines] == list(NAMES[WITH])
    assert [line.get_label() for line in right.lines] == list(NAMES[WITHOUT])
    np.testing.assert_allclose(left.lines[2].get_xydata(), [[3, 6], [100, 200], [10_000, 20_000]])
    (band, *_) = left.collections
    (path,) = band.get_paths()
    assert {3.0, 9.0, 10_000.0, 30_000.0} <= {round(y, 6) for y in path.vertices[:, 1]}
    assert (left.get_xscale(), left.get_yscale()) == ("log", "log")
    assert left.get_ylabel() == "forward and backward (µs)"
    assert left.get_xlabel() == "classes $C$"


def test_the_machine_and_the_rounds_are_named():
    text = draw_smoothing_cost(made_up())._supxlabel.get_text()
    assert text.replace("\n", " ") == (
        r"batch 100, float32, median of 5 rounds in turns, band: quartiles; Abacus \$1_000\$, 1 thread, torch 9"
    )


def test_the_legend_covers_nothing_and_names_each_line_once():
    figure = draw_smoothing_cost(made_up())
    figure.draw_without_rendering()
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [*NAMES[WITH], "label smoothing"]
    assert not any(legend.get_window_extent().overlaps(axes.get_tightbbox()) for axes in figure.axes)
    assert legend.get_window_extent().x1 <= figure.bbox.x1


def test_without_timings_the_figure_says_so():
    figure = draw_smoothing_cost(SmoothingCost("", 1, ()))
    assert [text.get_text() for text in figure.texts] == ["nothing was timed"]
