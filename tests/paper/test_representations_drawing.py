"""Pictures of a layer as drawn: colours by class, a label each, the error below."""

import numpy as np
import pytest
from matplotlib.colors import to_hex

from evomal.figures.style import save_figure
from evomal.paper.representations import CLASS_COLOURS, Representation, Representations, draw_representations


def data(places, colours, *, kind="classification", pictures=1, sentences=(), metric="error_rate"):
    losses = tuple(Representation(f"loss {n}", "head", 8, places + n, 0.9, 0.125) for n in range(pictures))
    classes = int(colours.max()) + 1 if kind == "classification" else 0
    return Representations(
        "own", kind, metric, "20 steps", 1000, len(places), 5000, classes, colours, losses, sentences
    )


def circle(number, rows=12):
    colours = np.repeat(np.arange(number), rows).astype(float)
    angles = 2 * np.pi * colours / number
    noise = np.random.default_rng(0).normal(size=(len(colours), 2))
    return 10 * np.stack([np.cos(angles), np.sin(angles)], axis=1) + noise, colours


def test_every_class_has_its_colour_and_its_number_near_the_median(tmp_path):
    places, colours = circle(10)
    found = data(places, colours, pictures=2)
    figure = draw_representations(found)
    assert [axes.get_title() for axes in figure.axes] == ["loss 0", "loss 1"]
    for number, axes in enumerate(figure.axes):
        (points,) = axes.collections
        np.testing.assert_allclose(points.get_offsets(), places + number)
        assert [to_hex(colour) for colour in points.get_facecolors()] == [CLASS_COLOURS[int(c)] for c in colours]
        assert axes.get_xlabel() == "test error rate 12.50 %"
        labels = {text.get_text(): np.array(text.get_position()) for text in axes.texts}
        assert list(labels) == [str(one) for one in range(10)]
        for one in range(10):
            median = np.median(places[colours == one], axis=0) + number
            assert np.linalg.norm(labels[str(one)] - median) < 1.5
        assert len(axes.get_xticks()) == 0
    note = " ".join(figure.get_supxlabel().split())
    assert note == (
        "own, 20 steps, seed 1000: t-SNE of the last layer's inputs for 120 of 5,000 test rows; numbers: classes, near "
        "the medians of their rows"
    )
    assert len(save_figure(figure, tmp_path / "figure", found.columns())) == 4


def test_the_ten_colours_differ():
    assert len(set(CLASS_COLOURS)) == 10


@pytest.mark.parametrize("pictures", [1, 4])
def test_labels_do_not_overlap_even_where_all_medians_are_one(pictures):
    rng = np.random.default_rng(0)
    figure = draw_representations(data(rng.normal(size=(400, 2)), np.arange(400.0) % 10, pictures=pictures))
    figure.draw_without_rendering()
    for axes in figure.axes:
        boxes = [text.get_window_extent() for text in axes.texts]
        assert len(boxes) == 10
        assert not any(one.overlaps(other) for one in boxes for other in boxes if one is not other)


def test_many_classes_share_colours_and_have_no_labels():
    places, colours = circle(30, rows=2)
    figure = draw_representations(data(places, colours))
    assert len(figure.axes[0].texts) == 0
    assert "colours repeat every 10 classes" in " ".join(figure.get_supxlabel().split())


@pytest.mark.parametrize(("kind", "label"), [("regression", "target value"), ("multilabel", "number of labels")])
def test_values_are_coloured_by_a_scale(kind, label):
    places, colours = circle(4)
    panel, bar = draw_representations(data(places, colours, kind=kind, metric="mse")).axes
    assert panel.collections[0].get_array().tolist() == colours.tolist()
    assert panel.get_xlabel() == "test mse 0.125"
    assert bar.get_ylabel() == label


def test_the_sentence_stands_where_there_is_no_picture():
    places, colours = circle(2)
    figure = draw_representations(data(places, colours, pictures=0, sentences=("mse: no layer",)))
    assert [text.get_text() for text in figure.texts] == ["mse: no layer"]
