"""Times as they are drawn."""

from evomal.figures.run_times import RunTimes, draw_run_times, run_times, unit_of
from evomal.runs.reading import read_runs
from tests.figures.records import record, row


def drawn(folder):
    figure = draw_run_times(run_times(read_runs([folder])))
    figure.draw_without_rendering()
    return figure


def test_a_bar_is_made_of_its_stages(tmp_path):
    record(tmp_path / "a", [row(0, 0, 1.0, filter=1.0, evaluate=3.0)])
    record(tmp_path / "b", [row(0, 0, 1.0, filter=3.0, evaluate=5.0)], seed=1, complete=False)
    record(tmp_path / "c", [row(0, 0, 1.0, evaluate=2.0)], method="random")
    figure = drawn(tmp_path)
    (axes,) = figure.axes
    assert [(bar.get_x(), bar.get_width()) for bar in axes.patches] == [(0, 2), (2, 4), (0, 2)]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["evomal", "random"]
    assert [text.get_text() for text in axes.texts] == [
        "6 seconds\n2 searches (1 complete) of 1 generation",
        "2 seconds\n1 search of 1 generation",
    ]
    assert axes.get_xlabel() == "seconds per search (cpu, 1 thread)"
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["filter", "evaluate"]
    (spread,) = (line.get_segments() for line in axes.collections)
    assert [[round(x, 3) for x, _ in segment] for segment in spread] == [[3.172, 8.828]]  # 6 ± √8
    assert all(text.get_window_extent().x1 <= figure.bbox.x1 for text in axes.texts)


def test_each_task_has_an_axis_of_its_own_in_a_unit_that_suits_it(tmp_path):
    for task, seconds in (("short", 5.0), ("long", 36000.0)):
        record(tmp_path / task, [row(0, 0, 1.0, evaluate=seconds)], task=task)
    figure = drawn(tmp_path)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["long, linear", "short, linear"]
    assert [axes.patches[0].get_width() for axes in figure.axes] == [10, 5]
    assert figure.axes[0].get_xlabel().startswith("hours per search")
    assert [unit_of(seconds)[1] for seconds in (0, 599, 600, 7199, 7200)] == [
        "seconds", "seconds", "minutes", "minutes", "hours",
    ]  # fmt: skip


def test_runs_without_times_have_bars_of_no_length(tmp_path):
    record(tmp_path, [row(0, 0, 1.0)], method="$x$ 漢")
    figure = drawn(tmp_path)
    (axes,) = figure.axes
    assert (len(axes.patches), figure.legends) == (0, [])
    assert axes.texts[0].get_text() == "0 seconds\n1 search of 1 generation"


def test_nothing_to_draw_is_a_sentence():
    (text,) = draw_run_times(RunTimes((), "there is no run in here")).texts
    assert text.get_text() == "there is no run in here"
