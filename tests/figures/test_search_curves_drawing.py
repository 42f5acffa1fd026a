"""Meta-training curves as they are drawn."""

import numpy as np

from evomal.figures.search_curves import SearchCurves, draw_search_curves, method_styles, search_curves
from evomal.figures.style import BLUE, LINE_STYLES
from evomal.methods import METHODS
from evomal.runs.reading import read_runs
from tests.figures.records import record, row


def drawn(folder):
    figure = draw_search_curves(search_curves(read_runs([folder])))
    figure.draw_without_rendering()
    return figure


def named_lines(axes):
    return {line.get_label(): line for line in axes.lines if not line.get_label().startswith("_")}


def said_to_be_cut(figure):
    return "beyond the axis" in " ".join(figure.get_supxlabel().split())


def test_a_line_a_method_against_generations_and_evaluations(tmp_path):
    for seed, last in enumerate((1.0, 3.0)):
        record(tmp_path / f"e{seed}", [row(0, 0, 4.0), row(0, 1, 4.0), row(1, 0, last)], seed=seed)
    record(tmp_path / "r", [row(0, 0, 5.0), row(1, 0, 6.0)], method="random")
    figure = drawn(tmp_path)
    generations, evaluations = figure.axes
    lines = named_lines(generations)
    assert list(lines) == ["evomal", "random"]
    assert lines["evomal"].get_xydata().tolist() == [[1, 4], [2, 2]]
    assert lines["random"].get_ydata().tolist() == [5, 5]
    assert named_lines(evaluations)["evomal"].get_xydata().tolist() == [[1, 4], [2, 4], [3, 2]]
    assert (generations.get_xlabel(), evaluations.get_xlabel()) == ("generation", "losses trained")
    assert generations.get_ylabel() == "validation mse\n(lower is better)"
    assert generations.get_title(loc="left") == "planted, linear"
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["evomal (n = 2)", "random (n = 1)"]
    assert "complete searches keep their best" in figure.get_supxlabel()
    assert not any(legend.get_window_extent().overlaps(axes.get_tightbbox()) for axes in figure.axes)


def test_a_dot_marks_where_a_search_leaves_the_mean(tmp_path):
    record(tmp_path / "a", [row(0, 0, 4.0), row(1, 0, 3.0), row(2, 0, 2.0)])
    record(tmp_path / "b", [row(0, 0, 6.0), row(1, 0, 5.0)], seed=1, complete=False)
    generations = drawn(tmp_path).axes[0]
    dots = [line.get_xydata().tolist() for line in generations.lines if line.get_marker() == "o"]
    assert dots == [[[2, 4]]]


def test_beginnings_that_would_flatten_the_rest_are_cut_which_is_said(tmp_path):
    record(tmp_path, [row(generation, 0, 1e6 if generation < 2 else 10.0 - generation) for generation in range(9)])
    figure = drawn(tmp_path)
    low, high = figure.axes[0].get_ylim()
    assert low < 2 < 8 < high < 10
    assert said_to_be_cut(figure)
    record(tmp_path / "even", [row(generation, 0, 10.0 - generation) for generation in range(9)], task="even")
    figure = drawn(tmp_path / "even")
    assert figure.axes[0].get_ylim()[1] > 10
    assert not said_to_be_cut(figure)


def test_each_task_has_a_row_and_one_generation_is_a_point(tmp_path):
    record(tmp_path / "a", [row(0, 0, 1.0)], task="a")
    record(tmp_path / "b", [row(0, 0, -0.5)], task="b", metric="r2")
    figure = drawn(tmp_path)
    assert [axes.get_title(loc="left") for axes in figure.axes[::2]] == ["a, linear", "b, linear"]
    assert figure.axes[2].get_ylabel() == "validation r2\n(higher is better)"
    assert named_lines(figure.axes[0])["evomal"].get_marker() == "o"
    assert figure.axes[0].get_xlim() == (0.5, 1.5)
    assert figure.axes[2].get_ylim()[0] < 0.5 < figure.axes[2].get_ylim()[1]


def test_methods_look_the_same_in_every_figure():
    assert method_styles(["random", "evomal"])["evomal"][0] == BLUE
    assert method_styles(["random"])["random"] == method_styles(["x", "random"])["random"]
    known = list(method_styles(list(METHODS)).values())
    assert known[: len(LINE_STYLES)] == list(LINE_STYLES)
    assert len(set(map(str, known))) == len(METHODS)
    many = [str(style) for style in method_styles([f"method {number}" for number in range(20)]).values()]
    assert len({*many, *map(str, LINE_STYLES)}) == 26


def test_a_method_whose_name_begins_with_an_underline_has_a_place_in_the_legend(tmp_path):
    record(tmp_path, [row(0, 0, 1.0)], method="_mine")
    assert [text.get_text() for text in drawn(tmp_path).legends[0].get_texts()] == [" _mine (n = 1)"]


def test_names_of_strangers_and_values_that_are_not_finite_are_drawn_harmlessly(tmp_path):
    for seed in (0, 1):
        rows = [row(0, 0, 1.7e308), row(1, 0, 1.0)]
        record(tmp_path / str(seed), rows, method="$\\frac$ 漢", task="$x^$\x1b[2J", metric="$_$", seed=seed)
    axes = drawn(tmp_path).axes[0]
    assert axes.get_title(loc="left") == r"\$x^\$\x1b[2J, linear"
    assert np.isfinite(axes.get_ylim()).all()


def test_nothing_to_draw_is_a_sentence():
    (text,) = draw_search_curves(SearchCurves((), "nothing was trained in these runs")).texts
    assert text.get_text() == "nothing was trained in these runs"


def test_the_task_s_own_loss_and_its_best_rival_are_horizontal_lines(tmp_path):
    rivals = {"mse": 2.5, "mae": 3.5, "huber": 1.5}
    record(tmp_path, [row(0, 0, 4.0), row(1, 0, 2.0)], rivals=rivals)
    figure = drawn(tmp_path)
    for axes in figure.axes:
        levels = {
            line.get_linestyle(): set(line.get_ydata()) for line in axes.lines if list(line.get_xdata()) == [0, 1]
        }
        assert levels == {"--": {2.5}, ":": {1.5}}
        low, high = axes.get_ylim()
        assert low < 1.5 < 4.0 < high
        assert [text.get_text() for text in axes.texts] == ["huber"]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["evomal (n = 1)", "baseline (mse)", "best rival"]


def test_levels_beyond_the_axis_are_named_above_it(tmp_path):
    rivals = ({"mse": 250.0, "mae": 200.0}, {"mse": 3.0, "mae": -200.0}, {"mse": 3.0, "mae": 2.5})
    found = []
    for number, own in enumerate(rivals):
        record(tmp_path / f"{number}", [row(0, 0, 4.0), row(1, 0, 2.0)], rivals=own)
        found.append([axes.get_title(loc="right") for axes in drawn(tmp_path / f"{number}").axes])
    assert found == [["", "beyond the axis: mse 250, mae 200"], ["", "beyond the axis: mae -200"], ["", ""]]
