"""What trained models make of the test rows before their last layer, in two dimensions by t-SNE."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from evomal.engine.training import evaluate_model
from evomal.errors import InputError
from evomal.figures.scans import FloatArray
from evomal.figures.style import GREY, INK, add_note, figure_style, in_figure, panels, sentence_figure, shown_name
from evomal.figures.trained_models import FIRST_SEED, TrainedModel, fixed_rows, shown_metric, trained_models
from evomal.progress import Announce
from evomal.randomness import derived_seed
from evomal.tasks.data_checks import Kind
from evomal.tasks.task import Task
from evomal.verdict.contestants import Losses
from evomal.verdict.words import schedule_words

LEAST_ROWS = 10  # fewer make no picture
_PERPLEXITY = 30.0
_LAST_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


@dataclass(frozen=True)
class Representation:
    """One model's picture of the rows."""

    name: str
    layer: str
    """The last layer, whose inputs these are."""
    features: int
    places: FloatArray
    """(rows, 2)."""
    same_class_neighbours: float | None
    """Share of rows whose nearest row, in the layer and not in the picture, is of the same class; of classification."""
    test: float
    """The task's metric on the whole test split."""


@dataclass(frozen=True)
class Representations:
    """The pictures of several losses, of the same rows."""

    task: str
    kind: Kind
    metric: str
    steps: int
    seed: int
    rows: int
    all_rows: int
    classes: int
    colours: FloatArray
    """Of each row: its class, its (first) target value, or the number of its labels."""
    losses: tuple[Representation, ...]
    sentences: tuple[str, ...]
    """What could not be drawn."""
    milestones: tuple[int, ...] = ()
    """Steps at which the learning rate was divided by ten."""

    @property
    def colour_name(self) -> str:
        """What the colours stand for."""
        return {"classification": "class", "regression": "target", "multilabel": "labels"}[self.kind]

    def columns(self) -> dict[str, list[object]]:
        """A row for each point of each picture."""
        columns: dict[str, list[object]] = {"loss": [], "row": [], self.colour_name: [], "x": [], "y": []}
        for found in self.losses:
            columns["loss"] += [found.name] * self.rows
            columns["row"] += range(self.rows)
            columns[self.colour_name] += self._plain_colours()
            columns["x"] += found.places[:, 0].tolist()
            columns["y"] += found.places[:, 1].tolist()
        return columns

    def _plain_colours(self) -> list[object]:
        return [value if self.kind == "regression" else int(value) for value in self.colours.tolist()]


def representations(
    task: Task,
    losses: Losses,
    *,
    samples: int = 1000,
    seed: int = FIRST_SEED,
    steps: int | None = None,
    milestones: tuple[int, ...] | None = None,
    device: str = "auto",
    announce: Announce | None = None,
) -> Representations:
    """Train with each loss from one seed, and lay out the same test rows by what the last layer is given of them.

    t-SNE is van der Maaten and Hinton's (2008), from the principal components, with a perplexity of 30 or a third of
    the rows, as scikit-learn has it.
    """
    if samples < LEAST_ROWS or len(task.test) < LEAST_ROWS:
        what, number = ("samples", samples) if samples < LEAST_ROWS else ("test rows", len(task.test))
        raise InputError(f"{what} must be at least {LEAST_ROWS} but got {number}")
    part = fixed_rows(task.test, samples, "representation")
    classes = part.targets if task.kind == "classification" else None
    pictures: list[Representation] = []
    sentences: list[str] = []
    for trained in trained_models(
        task, losses, seed=seed, steps=steps, milestones=milestones, device=device, announce=announce
    ):
        if announce is not None and trained.model is not None:
            announce(f"laying out {len(part):,} rows by t-SNE")
        found = _pictured(trained, part.inputs, classes, seed)
        if isinstance(found, str):
            sentences.append(found)
        else:
            pictures.append(found)
    return Representations(
        task=task.name,
        kind=task.kind,
        metric=task.metric.name,
        steps=task.recipe.steps if steps is None else steps,
        milestones=task.recipe.schedule(steps, milestones).milestones,
        seed=seed,
        rows=len(part),
        all_rows=len(task.test),
        classes=task.outputs if task.kind == "classification" else 0,
        colours=_colours(part.targets, task.kind),
        losses=tuple(pictures),
        sentences=tuple(sentences),
    )


def penultimate(model: nn.Module, inputs: Tensor) -> tuple[FloatArray, str] | None:
    """What the last linear or convolutional layer is given, a flat row for each input, and that layer's name.

    The last is the one called last. None where the model calls no such layer, or not once for each batch.
    """
    names: dict[nn.Module, str] = {
        module: name for name, module in model.named_modules() if isinstance(module, _LAST_LAYERS)
    }
    given: list[tuple[nn.Module, Tensor]] = []

    def noted(module: nn.Module, arguments: tuple[Any, ...], _: Tensor) -> None:
        given.append((module, arguments[0].detach()))

    rows: list[FloatArray] = []
    last: set[nn.Module] = set()
    hooks = [module.register_forward_hook(noted) for module in names]
    try:
        for batch in torch.split(inputs, 256):
            given.clear()
            evaluate_model(model, batch)
            if not given or len(given[-1][1]) != len(batch):
                return None
            last.add(given[-1][0])
            rows.append(given[-1][1].flatten(1).double().cpu().numpy())
    finally:
        for hook in hooks:
            hook.remove()
    return np.concatenate(rows), names[last.pop()] or "the model itself"


def laid_out(features: FloatArray, *, seed: int) -> FloatArray:
    """The rows in two dimensions: neighbours stay neighbours."""
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    start = "pca" if min(features.shape) > 1 else "random"
    method = TSNE(
        perplexity=min(_PERPLEXITY, (len(features) - 1) / 3), init=start,
        random_state=derived_seed(seed, "t-SNE") % 2**32,
    )  # fmt: skip
    with threadpool_limits(1):  # threads add up in whatever order they come, and the picture would depend on it
        places: npt.NDArray[Any] = method.fit_transform(features)
    return places.astype(np.float64)


def same_class_neighbours(features: FloatArray, classes: npt.NDArray[Any]) -> float:
    """Share of rows whose nearest other row is of the same class."""
    from sklearn.neighbors import NearestNeighbors

    # Asked for no rows in particular, it leaves out each row itself.
    nearest = NearestNeighbors(n_neighbors=1).fit(features).kneighbors(return_distance=False)[:, 0]
    return float((classes[nearest] == classes).mean())


def _pictured(trained: TrainedModel, inputs: Tensor, classes: Tensor | None, seed: int) -> Representation | str:
    """The picture, or why there is none."""
    if trained.model is None:
        return trained.sentence
    parameter = next(trained.model.parameters())
    found = penultimate(trained.model, inputs.to(parameter.device, parameter.dtype))
    if found is None:
        return f"{trained.name}: the model has no last linear or convolutional layer, so there is none before it"
    features, layer = found
    if not np.isfinite(features).all():
        return f"{trained.name}: the inputs of the last layer are not finite"
    if (features == features[0]).all():
        return f"{trained.name}: the inputs of the last layer are the same for all rows"
    return Representation(
        name=trained.name,
        layer=layer,
        features=features.shape[1],
        places=laid_out(features, seed=seed),
        same_class_neighbours=None if classes is None else same_class_neighbours(features, classes.numpy()),
        test=trained.score.test,
    )


def _colours(targets: Tensor, kind: Kind) -> FloatArray:
    values = targets.double().numpy()
    if kind == "multilabel":
        values = values.sum(axis=1)
    elif kind == "regression":
        values = values[:, 0]
    found: FloatArray = values
    return found


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
