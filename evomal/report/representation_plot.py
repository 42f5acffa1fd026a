"""Pictures of a layer by t-SNE, one panel a loss, coloured by class or by target."""

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from evomal.analysis.line_scans import FloatArray
from evomal.analysis.representations import Representation, Representations
from evomal.analysis.trained_models import shown_metric
from evomal.report.bands import add_note, panels, shown_name
from evomal.report.style import GREY, INK, figure_style, in_figure, sentence_figure
from evomal.verdict.words import schedule_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CLASS_COLOURS = (
    "#332288", "#88ccee", "#44aa99", "#117733", "#999933", "#ddcc77", "#cc6677", "#882255", "#aa4499", GREY,
)  # fmt: skip
"""Paul Tol's scheme `muted`, told apart by nearly everybody, and grey."""
_MOST_LABELS = 20
_MOST_BESIDE = 4
_LABEL_DISTANCE = 0.085  # of a panel's side
_HEIGHTS = {1: 3.2, 2: 3.2, 3: 2.4, 4: 1.9}


def draw_representations(data: Representations) -> "Figure":
    """The axes of t-SNE have no unit, so that they have no ticks: only who is near whom says something."""
    if not data.losses:
        return sentence_figure("; ".join(data.sentences))
    beside = min(len(data.losses), _MOST_BESIDE)
    with figure_style():
        figure, grid = panels(len(data.losses), most=_MOST_BESIDE, height=_HEIGHTS[beside])
        for axes, found in zip(grid, data.losses, strict=True):
            points = _draw_points(axes, data, found)
            axes.set_title(shown_name(found.name))
            metric = in_figure(data.metric.replace("_", " "))
            axes.set_xlabel(f"test {metric} {shown_metric(found.test, data.metric)}")
            axes.set_xticks([])
            axes.set_yticks([])
            axes.spines[["top", "right"]].set_visible(True)
            axes.spines[:].set_color(GREY)
        if data.kind != "classification":
            label = "number of labels" if data.kind == "multilabel" else "target value"
            bar = figure.colorbar(points, ax=grid, label=label, shrink=0.9)
            bar.outline.set_linewidth(0)
        add_note(figure, _note(data))
    return figure


def _draw_points(axes: "Axes", data: Representations, found: Representation) -> Any:
    size = float(np.clip(3000 / data.rows, 1.5, 12))
    x, y = found.places.T
    if data.kind != "classification":
        return axes.scatter(x, y, c=data.colours, cmap="viridis", s=size, linewidths=0)
    classes = data.colours.astype(np.int64)
    colours = [CLASS_COLOURS[number % len(CLASS_COLOURS)] for number in classes]
    points = axes.scatter(x, y, c=colours, s=size, linewidths=0)
    present = np.unique(classes)
    if len(present) <= _MOST_LABELS:
        _draw_labels(axes, found.places, classes, present)
    return points


def _draw_labels(
    axes: "Axes", places: FloatArray, classes: npt.NDArray[np.int64], present: npt.NDArray[np.int64]
) -> None:
    from matplotlib.patheffects import withStroke

    low, high = np.array([axes.get_xlim(), axes.get_ylim()]).T
    medians = np.stack([np.median(places[classes == number], axis=0) for number in present])
    spots = low + (high - low) * _spread((medians - low) / (high - low))
    outline = [withStroke(linewidth=1.8, foreground="white")]
    for number, (x, y) in zip(present.tolist(), spots.tolist(), strict=True):
        axes.text(
            x, y, str(number), ha="center", va="center", color=INK, fontweight="bold", fontsize=8, path_effects=outline
        )  # fmt: skip


def _spread(spots: FloatArray) -> FloatArray:
    """The spots, moved apart where labels on them would overlap, and within the panel."""
    spots = spots.copy()
    for _ in range(200):
        gaps = spots[:, None] - spots[None]
        distances = np.hypot(gaps[..., 0], gaps[..., 1])
        np.fill_diagonal(distances, np.inf)
        first, second = np.unravel_index(int(distances.argmin()), distances.shape)
        nearest = distances[first, second]
        if nearest >= _LABEL_DISTANCE:
            break
        way = gaps[first, second] / nearest if nearest > 0 else np.array([1.0, 0.0])
        shift = (_LABEL_DISTANCE * 1.01 - nearest) / 2 * way
        spots[first] += shift
        spots[second] -= shift
    return np.clip(spots, 0.04, 0.96)


def _note(data: Representations) -> str:
    rows = f"{data.rows:,} test rows" if data.rows == data.all_rows else f"{data.rows:,} of {data.all_rows:,} test rows"
    schedule = schedule_words(data.steps, data.milestones)
    parts = [f"{data.task}, {schedule}, seed {data.seed}: t-SNE of the last layer's inputs for {rows}"]
    if data.kind == "classification" and data.classes <= _MOST_LABELS:
        parts.append("numbers: classes, near the medians of their rows")
    if data.classes > len(CLASS_COLOURS):
        parts.append(f"colours come again every {len(CLASS_COLOURS)} classes")
    return "; ".join([*parts, *data.sentences])
