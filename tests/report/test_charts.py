"""Charts as SVG: scales, ticks, and nothing from a record as markup."""

import math
import xml.etree.ElementTree as ElementTree

import pytest

from evomal.report.charts import WIDTH, Axis, Chart, LinkedPoint, rows_axis

HOSTILE = "<script>alert(1)</script>\" onload='x' \u202e"


def chart(**options):
    return Chart("a chart", Axis("x", 0.0, 10.0), Axis("y", -1.0, 1.0), **options)


@pytest.mark.parametrize(
    ("axis", "texts"),
    [
        (Axis("", 0.0, 10.0), ["0", "2", "4", "6", "8", "10"]),
        (Axis("", 0.5, 3.5, whole=True), ["1", "2", "3"]),
        (Axis("", -0.02, 0.02), ["−0.02", "−0.01", "0", "0.01", "0.02"]),
        (Axis("", 0.1, 0.2, scale=100.0), ["10", "12", "14", "16", "18", "20"]),
        (Axis("", 1.0, 1.0), []),
        (Axis("", 0.0, math.inf), []),
    ],
)
def test_ticks_are_round_numbers(axis, texts):
    assert [text for _, text in axis.ticks()] == texts


def test_values_that_are_not_finite_interrupt_lines_and_are_no_points():
    drawn = chart()
    drawn.line([(0, 0), (1, 1), (2, math.nan), (3, 1)], "blue")
    drawn.dots([(math.inf, 0), (1, math.nan)], "blue")
    drawn.links([LinkedPoint(math.nan, 0, "/", "")], "blue")
    markup = drawn.markup()
    assert markup.count("<polyline") == 2
    assert "nan" not in markup
    assert "inf" not in markup
    assert "<a " not in markup


def test_values_beyond_the_axis_are_drawn_at_its_edge():
    drawn = chart()
    drawn.dots([(10, 1)], "blue")
    drawn.markup()
    assert not drawn.is_cut
    drawn.dots([(1e300, 1e300)], "blue")
    assert 'd="M442.0,14.0m' in drawn.markup()
    assert drawn.is_cut


def test_levels_beyond_the_axis_are_told_and_not_drawn():
    drawn = Chart("a chart", Axis("x", 0.0, 10.0), Axis("y", -1.0, 1.0, scale=100.0))
    drawn.level(1.5, "grey", "dashed", "baseline mse")
    drawn.band(1.2, 1.8, "grey", "noise")
    assert "<polyline" not in drawn.markup()
    assert "<rect" not in drawn.markup()
    assert [text for _, _, text in drawn.legend] == ["baseline mse: 150, beyond the axis", "noise, beyond the axis"]
    drawn.level(1.0, "grey", "dashed", "baseline mse")
    assert drawn.markup().count("<polyline") == 1
    assert drawn.legend[-1][-1] == "baseline mse"


def test_texts_are_escaped():
    drawn = Chart(HOSTILE, Axis(HOSTILE, 0, 1), rows_axis(1), rows=[HOSTILE])
    drawn.links([LinkedPoint(0.5, 0, f"/{HOSTILE}", HOSTILE)], "blue", name=HOSTILE)
    root = ElementTree.fromstring(str(drawn.markup()))
    assert {node.tag for node in root.iter()} <= {"svg", "path", "text", "a", "circle", "title"}
    assert all(not name.startswith("on") for node in root.iter() for name in node.attrib)
    assert "\u202e" not in drawn.markup()


def test_a_chart_with_links_is_no_image_for_screen_readers():
    drawn = chart()
    assert 'role="img"' in drawn.markup()
    drawn.links([LinkedPoint(1, 0, "/there", "a formula")], "blue")
    assert 'role="group"' in drawn.markup()
    assert 'aria-label="a formula"' in drawn.markup()


def test_rows_go_from_the_top_to_the_bottom():
    drawn = Chart("", Axis("", 0, 1), rows_axis(2), rows=["first", "second"])
    texts = {node.text: float(node.attrib["y"]) for node in ElementTree.fromstring(str(drawn.markup())) if node.text}
    assert texts["first"] < texts["second"]


def test_long_marks_have_room_beside_the_axis():
    drawn = Chart("a chart", Axis("x", 0.0, 2000.0), Axis("y", 0.500001, 0.500009))
    elements = list(ElementTree.fromstring(drawn.markup()).iter("text"))
    marks = [one for one in elements if (one.text or "").startswith("0.5000")]
    assert marks
    assert all(float(one.get("x")) - 7 * len(one.text) >= 12 for one in marks)
    (last,) = [one for one in elements if one.text == "2000"]
    assert float(last.get("x")) + 4 * 7 / 2 <= WIDTH
