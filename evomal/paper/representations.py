"""Representations: the inputs of trained models' last layer for the test rows, in two dimensions by t-SNE."""

from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from evomal.checks import Kind, whole_number
from evomal.engine.rows import has_positions
from evomal.engine.training import evaluate_model
from evomal.errors import InputError
from evomal.figures import style
from evomal.figures.data import TrainedModel, TrainingOptions, fixed_rows, row_words, schedule_of, table, trained_models
from evomal.figures.style import GREY, INK, Axes, Figure, FloatArray
from evomal.randomness import derived_seed
from evomal.tasks.inputs import Inputs, count, moved, pieces
from evomal.tasks.metric_display import metric_text
from evomal.tasks.task import Task
from evomal.verdict.contestants import Losses

LEAST_ROWS = 10
_MOST_ROWS = 100_000  # t-SNE takes hours for more
_PERPLEXITY = 30.0
_LAST_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


@dataclass(frozen=True)
class Representation:
    """The rows as one trained model represents them."""

    name: str
    layer: str
    """The name of the last layer, whose inputs these are."""
    features: int
    places: FloatArray
    """(rows, 2)."""
    same_class_neighbours: float | None
    """For classification: the share of rows whose nearest row in the layer, not in the picture, has the same class."""
    test: float
    """The task's metric on the whole test split."""


@dataclass(frozen=True)
class Representations:
    """The pictures of several losses, of the same rows."""

    task: str
    kind: Kind
    metric: str
    schedule: str
    """How long the trainings were."""
    seed: int
    rows: int
    all_rows: int
    classes: int
    colours: FloatArray
    """The class of each row, its (first) target value, or the number of its labels."""
    losses: tuple[Representation, ...]
    sentences: tuple[str, ...]
    """Why there is no picture of a loss."""

    def columns(self) -> dict[str, list[Any]]:
        """Return a table with one row per point of each picture."""
        colours = self.colours.tolist() if self.kind == "regression" else self.colours.astype(np.int64).tolist()
        colour_name = {"classification": "class", "regression": "target", "multilabel": "labels"}[self.kind]
        return table(
            ("loss", "row", colour_name, "x", "y"),
            (
                (found.name, row, colours[row], *found.places[row].tolist())
                for found in self.losses
                for row in range(self.rows)
            ),
        )


def representations(
    task: Task, losses: Losses, *, samples: int = 1000, **options: Unpack[TrainingOptions]
) -> Representations:
    """Train with each loss from one seed, and lay out test rows by the inputs of the last layer.

    Args:
        task: The task.
        losses: Losses, names of losses or loss files.
        samples: The number of test rows, the same for every loss.
        options: See `evomal.figures.data.TrainingOptions`; there is one seed, which is also that of t-SNE.

    Returns:
        One picture per loss. t-SNE is scikit-learn's (van der Maaten and Hinton, 2008), from the principal components,
        with a perplexity of 30 or a third of the rows.

    Raises:
        InputError: If there are fewer than ten rows.
    """
    for what, number in (("samples", samples), ("test rows", len(task.test))):
        if number < LEAST_ROWS:
            raise InputError(f"{what} must be at least {LEAST_ROWS} but got {number}")
    whole_number("samples", samples, at_most=_MOST_ROWS)
    if has_positions(task):
        raise InputError(
            f"representations are of samples with one target each, but {task.name} has targets of shape "
            f"{list(task.test.targets.shape[1:])} for each sample"
        )
    part = fixed_rows(task.test, samples, "representation")
    classes = part.targets if task.kind == "classification" else None
    options["seeds"] = 1
    announce = options.get("announce")
    pictures: list[Representation] = []
    sentences: list[str] = []
    for trained in trained_models(task, losses, **options):
        if announce is not None and not trained.score.diverged:
            announce(f"laying out {len(part):,} rows by t-SNE")
        found = _pictured(trained, part.inputs, classes)
        if isinstance(found, str):
            sentences.append(found)
        else:
            pictures.append(found)
    return Representations(
        task=task.name,
        kind=task.kind,
        metric=task.metric.name,
        schedule=schedule_of(task, options),
        seed=trained.score.seed,  # of the last training; there is at least one, and all have the same seed
        rows=len(part),
        all_rows=len(task.test),
        classes=task.outputs if task.kind == "classification" else 0,
        colours=_colours(part.targets, task.kind),
        losses=tuple(pictures),
        sentences=tuple(sentences),
    )


def penultimate(model: nn.Module, inputs: Inputs) -> tuple[FloatArray, str] | None:
    """Return the inputs of the last linear or convolutional layer, one flat row per row, and that layer's name.

    The last layer is the one called last. None if the model calls no such layer, or not once per batch.
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
        for batch in pieces(inputs, 256):
            given.clear()
            evaluate_model(model, batch)
            if not given or len(given[-1][1]) != count(batch):
                return None
            last.add(given[-1][0])
            rows.append(given[-1][1].flatten(1).double().cpu().numpy())
    finally:
        for hook in hooks:
            hook.remove()
    return np.concatenate(rows), names[last.pop()] or "the model itself"


def laid_out(features: FloatArray, *, seed: int) -> FloatArray:
    """Return the rows in two dimensions, where neighbours stay neighbours."""
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    start = "pca" if min(features.shape) > 1 else "random"
    method = TSNE(
        perplexity=min(_PERPLEXITY, (len(features) - 1) / 3), init=start,
        random_state=derived_seed(seed, "t-SNE") % 2**32,
    )  # fmt: skip
    with threadpool_limits(1):  # several threads would add numbers in any order, and change the picture
        places: npt.NDArray[Any] = method.fit_transform(features)
    return places.astype(np.float64)


def same_class_neighbours(features: FloatArray, classes: npt.NDArray[Any]) -> float:
    """Return the share of rows whose nearest other row has the same class."""
    from sklearn.neighbors import NearestNeighbors

    # Without an argument, kneighbors excludes each row itself.
    nearest = NearestNeighbors(n_neighbors=1).fit(features).kneighbors(return_distance=False)[:, 0]
    return float((classes[nearest] == classes).mean())


def _pictured(trained: TrainedModel, inputs: Inputs, classes: Tensor | None) -> Representation | str:
    """The picture, or a sentence that says why there is none."""
    model = trained.score.model
    if model is None:
        return trained.sentence
    parameter = next(model.parameters())
    found = penultimate(model, moved(inputs, parameter.device, parameter.dtype))
    if found is None:
        return f"{trained.name}: the model has no last linear or convolutional layer, whose inputs could be shown"
    features, layer = found
    if not np.isfinite(features).all():
        return f"{trained.name}: the inputs of the last layer are not finite"
    if (features == features[0]).all():
        return f"{trained.name}: the inputs of the last layer are the same for all rows"
    return Representation(
        name=trained.name,
        layer=layer,
        features=features.shape[1],
        places=laid_out(features, seed=trained.score.seed),
        same_class_neighbours=None if classes is None else same_class_neighbours(features, classes.numpy()),
        test=trained.score.test,
    )


def _colours(targets: Tensor, kind: Kind) -> FloatArray:
    values: FloatArray = targets.double().numpy()
    if kind == "classification":
        return values
    return values.sum(axis=1) if kind == "multilabel" else values[:, 0]


CLASS_COLOURS = (
    "#332288", "#88ccee", "#44aa99", "#117733", "#999933", "#ddcc77", "#cc6677", "#882255", "#aa4499", GREY,
)  # fmt: skip
"""Paul Tol's scheme `muted`, which colour-blind readers can tell apart, and grey."""
_MOST_LABELS = 20
_MOST_BESIDE = 4
_LABEL_DISTANCE = 0.085  # of a panel's side
_HEIGHTS = {1: 3.2, 2: 3.2, 3: 2.4, 4: 1.9}


@style.figure_style()
def draw_representations(data: Representations) -> Figure:
    """Draw one picture per loss, without ticks: in t-SNE only neighbourhood has a meaning."""
    if not data.losses:
        return style.sentence_figure("; ".join(data.sentences))
    height = _HEIGHTS[min(len(data.losses), _MOST_BESIDE)]
    figure, grid = style.panels(len(data.losses), most=_MOST_BESIDE, height=height)
    metric = style.figure_text(data.metric.replace("_", " "))
    for axes, found in zip(grid, data.losses, strict=True):
        points = _draw_points(axes, data, found)
        axes.set_title(style.shown_name(found.name))
        axes.set_xlabel(f"test {metric} {metric_text(found.test, data.metric)}")
        axes.set_xticks([])
        axes.set_yticks([])
        axes.spines[["top", "right"]].set_visible(True)
        axes.spines[:].set_color(GREY)
    if data.kind != "classification":
        label = "number of labels" if data.kind == "multilabel" else "target value"
        figure.colorbar(points, ax=grid, label=label, shrink=0.9).outline.set_linewidth(0)
    rows = row_words(data.rows, data.all_rows, "test")
    about = f"{data.task}, {data.schedule}, seed {data.seed}: t-SNE of the last layer's inputs for {rows}"
    is_labelled = data.kind == "classification" and data.classes <= _MOST_LABELS
    labels = "numbers: classes, near the medians of their rows" if is_labelled else ""
    repeated = f"colours repeat every {len(CLASS_COLOURS)} classes" if data.classes > len(CLASS_COLOURS) else ""
    style.add_note(figure, about, labels, repeated, *data.sentences)
    return figure


def _draw_points(axes: Axes, data: Representations, found: Representation) -> Any:
    size = float(np.clip(3000 / data.rows, 1.5, 12))
    x, y = found.places.T
    if data.kind != "classification":
        return axes.scatter(x, y, c=data.colours, cmap="viridis", s=size, linewidths=0)
    classes = data.colours.astype(np.int64)
    colours = [CLASS_COLOURS[number % len(CLASS_COLOURS)] for number in classes]
    points = axes.scatter(x, y, c=colours, s=size, linewidths=0)
    if len(np.unique(classes)) <= _MOST_LABELS:
        _draw_labels(axes, found.places, classes)
    return points


def _draw_labels(axes: Axes, places: FloatArray, classes: npt.NDArray[np.int64]) -> None:
    from matplotlib.patheffects import withStroke

    present = np.unique(classes)
    low, high = np.array([axes.get_xlim(), axes.get_ylim()]).T
    medians = np.stack([np.median(places[classes == number], axis=0) for number in present])
    spots = low + (high - low) * _spread((medians - low) / (high - low))
    outline = [withStroke(linewidth=1.8, foreground="white")]
    for number, (x, y) in zip(present.tolist(), spots.tolist(), strict=True):
        axes.text(
            x, y, str(number), ha="center", va="center", color=INK, fontweight="bold", fontsize=8, path_effects=outline
        )  # fmt: skip


def _spread(spots: FloatArray) -> FloatArray:
    """The spots, moved apart if labels on them would overlap, and within the panel."""
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
