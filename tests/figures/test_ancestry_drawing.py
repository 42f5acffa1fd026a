"""Family trees as they are drawn."""

from evomal.figures.ancestry import ancestry, change_lines, draw_ancestry
from evomal.figures.style import BLUE, VERMILLION
from evomal.runs.reading import read_runs
from tests.figures.records import record, row
from tests.figures.test_ancestry import FAMILY, family


def drawn(data):
    figure = draw_ancestry(data)
    figure.draw_without_rendering()
    return figure


def test_the_main_line_is_drawn_over_all_ancestors(tmp_path):
    figure = drawn(family(tmp_path, FAMILY))
    axes, below = figure.axes
    (line,) = (line for line in axes.lines if line.get_color() == BLUE)
    assert line.get_xydata().tolist() == [[1, 9], [2, 7], [4, 1]]
    (best,) = (line for line in axes.lines if line.get_color() == VERMILLION)
    assert best.get_xydata().tolist() == [[4, 1]]
    # One of the first generation was rejected, and stands at the worse edge.
    (edge,) = (line for line in axes.lines if line.get_marker() == "^")
    assert edge.get_xydata().tolist() == [[1, axes.get_ylim()[1]]]
    segments = [segment.tolist() for segment in axes.collections[0].get_segments()]
    assert len(segments) == 4
    assert [[2, 7], [4, 1]] in segments
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("generation", "validation mse\n(lower is better)")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "4 ancestors (3 copies left out)", "1 without a value or beyond the axis", "fittest parents", "best",
    ]  # fmt: skip
    (text,) = below.texts
    assert text.get_text().splitlines() == [
        "   1 initial           9  abs(sub(f, y))",
        "   2 crossover         7  y → square(f)",
        "   4 crossover         1  square(f) → tanh(sub(f, y))",
    ]
    extent = text.get_window_extent()
    assert not extent.overlaps(axes.get_tightbbox())
    assert extent.y0 >= figure.bbox.y0


def test_a_long_line_fits_the_figure(tmp_path):
    rows = [row(0, 0, 30.0, genome="abs(sub(f, y))")]
    for place in range(1, 20):
        genome = ("square", "abs")[place % 2] + "(" + "tanh(" * 30 + "sub(f, y)" + ")" * 31
        rows.append(row(place, 0, 30.0 - place, genome=genome, origin="mutation", parents=[0]))
    data = ancestry(read_runs([record(tmp_path, rows)]))
    figure = drawn(data)
    extent = figure.axes[1].texts[0].get_window_extent()
    assert extent.x1 <= figure.bbox.x1
    assert extent.y0 >= figure.bbox.y0
    lines = change_lines(data.changes(), most=6, length=70)
    assert (len(lines), lines[1]) == (6, "… 15 steps …")
    assert lines[0].split() == ["1", "initial", "30", "abs(sub(f,", "y))"]
    assert {len(line) for line in lines[2:]} == {70}
    assert [line.split()[0] for line in lines[2:]] == ["17", "18", "19", "20"]
    assert all(line.count("…") == 2 and " → " in line for line in lines[2:])


def test_one_candidate_alone_is_drawn_with_the_reason(tmp_path):
    figure = drawn(family(tmp_path, [row(0, 0, 1.0, genome="network")], method="$ml3$"))
    axes, below = figure.axes
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["best"]
    assert axes.get_title(loc="left") == r"\$ml3\$, planted, linear"
    assert below.texts[0].get_text().splitlines() == [
        "there is only one generation, so no candidate has parents",
        "   1 initial           1  network",
    ]


def test_nothing_to_draw_is_a_sentence(tmp_path):
    assert [text.get_text() for text in drawn(family(tmp_path, [row(0, 0)])).texts] == [
        "nothing was trained in this run"
    ]


def test_the_names_of_mutations_are_shown_whole(tmp_path):
    rows = [row(0, 0, 2.0), row(1, 0, 1.0, genome="abs(sub(f, 1))", origin="subtree mutation", parents=[0])]
    assert change_lines(family(tmp_path, rows).changes(), most=6, length=70) == [
        "   1 initial                  2  abs(sub(f, y))",
        "   2 subtree mutation         1  y → 1",
    ]
