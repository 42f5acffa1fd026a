"""Loss landscapes around trained weights, along random directions with filter-wise normalisation (Li et al., 2018)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Unpack, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from evomal.checks import one_of, whole_number
from evomal.engine.precision import matmul_precision
from evomal.engine.resolve import resolve_device
from evomal.engine.row_losses import RowLoss
from evomal.engine.rows import RowRule, Rows, with_row_outputs
from evomal.errors import InputError
from evomal.figures import style
from evomal.figures.data import (
    TrainingOptions,
    fixed_rows,
    mean_and_deviation,
    row_words,
    schedule_of,
    table,
    trained_models,
)
from evomal.figures.style import Axes, Band, Figure, FloatArray
from evomal.progress import tracked
from evomal.randomness import torch_generator
from evomal.tasks.inputs import Inputs, arguments, pieces
from evomal.tasks.task import Task
from evomal.verdict.contestants import Losses, baseline_contestant

if TYPE_CHECKING:
    from matplotlib.contour import QuadContourSet

Height = Literal["task", "training"]
Direction = dict[str, Tensor]

UNMOVED = "biases, and the parameters and statistics of normalisation, do not move"
"""As in Li et al.: parameters of one dimension have no filters."""
_MOST_POINTS = 1001  # two directions have the square of that
_LONGEST_RADIUS = 1e6
_BATCH = 1024
_TASK_LOSS_NAMES = {"classification": "cross-entropy", "multilabel": "cross-entropy", "regression": "squared error"}


@dataclass(frozen=True)
class Landscape:
    """The heights around the weights that were trained with one loss, for each seed that did not diverge."""

    name: str
    seeds: tuple[int, ...]
    heights: FloatArray
    """(seeds, points), or (seeds, points along the second direction, points along the first)."""

    @property
    def mean(self) -> FloatArray:
        return mean_and_deviation(self.heights)[0]

    @property
    def centre(self) -> float:
        """The mean height at the trained weights."""
        return float(self.mean.flat[self.mean.size // 2])

    @property
    def rise(self) -> float:
        """How much higher the edge is than the centre, as the mean over all points of the edge."""
        mean = self.mean
        is_edge = np.pad(np.zeros([size - 2 for size in mean.shape], dtype=bool), 1, constant_values=True)
        return float(mean[is_edge].mean()) - self.centre


@dataclass(frozen=True)
class Landscapes:
    """The landscapes of several losses, with the same random directions."""

    task: str
    of: Height
    height_name: str
    """`cross-entropy`, `squared error` or `training loss`."""
    positions: FloatArray
    """In multiples of a direction, whose filters are as long as those of the weights."""
    schedule: str
    """How long the trainings were."""
    row_words: str
    """How many training rows a height is the mean over."""
    losses: tuple[Landscape, ...]
    sentences: tuple[str, ...]
    """One for each training that diverged."""
    two_d: bool = False

    def columns(self) -> dict[str, list[Any]]:
        """Return a table with one row per height."""
        second = ("second_position",) if self.two_d else ()
        return table(
            ("loss", "seed", "position", *second, "height"),
            (
                (found.name, seed, *(float(self.positions[place]) for place in reversed(index)), float(heights[index]))
                for found in self.losses
                for seed, heights in zip(found.seeds, found.heights, strict=True)
                for index in np.ndindex(heights.shape)
            ),
        )


def landscapes(
    task: Task,
    losses: Losses,
    *,
    of: Height = "task",
    two_d: bool = False,
    points: int = 41,
    radius: float = 1.0,
    samples: int = 1000,
    **options: Unpack[TrainingOptions],
) -> Landscapes:
    """Train with each loss, then evaluate the loss at weights + a·d (+ b·e), with a and b from -radius to radius.

    Args:
        task: The task.
        losses: Losses, names of losses or loss files.
        of: The height: `task`, the task's loss, which is the same for all, or `training`, the loss of the training.
        two_d: Whether to take two directions. A seed's directions are the same random draw for every loss.
        points: The number of positions along a direction, an odd number.
        radius: How far to go, in multiples of a direction, whose filters are as long as those of the weights.
        samples: The number of training rows that a height is the mean over, the same for all models.
        options: See `evomal.figures.data.TrainingOptions`.

    Returns:
        One landscape per loss.

    Raises:
        InputError: If an argument is wrong, or the model has no weights with filters.
    """
    one_of("of", of, get_args(Height))
    whole_number("samples", samples, at_least=1)
    whole_number("points", points, at_least=3, at_most=_MOST_POINTS)
    if points % 2 == 0:
        raise InputError(f"points must be odd, so that the trained weights are one of them, but got {points}")
    if not 0 < radius <= _LONGEST_RADIUS:
        raise InputError(f"radius must be more than 0 and at most {_LONGEST_RADIUS:g} but got {radius}")
    positions = np.linspace(-radius, radius, points)
    where = resolve_device(options.get("device", "auto"))
    part = fixed_rows(task.train, samples, "landscape").to(where, torch.float32)
    rows = RowRule(task, where, torch.float32).of_loss(part)
    (task_loss,) = baseline_contestant(task).found
    found: dict[str, dict[int, FloatArray]] = {}
    sentences = []
    for trained in trained_models(task, losses, **options):
        seed = trained.score.seed
        if trained.score.model is None:
            sentences.append(trained.sentence)
            continue
        model = with_row_outputs(trained.score.model, task)
        loss = (task_loss.loss if of == "task" else trained.loss).to(where)
        directions = [random_direction(model, seed, number) for number in range(1 + two_d)]
        with matmul_precision("float32", where):
            heights = heights_around(model, loss, part.inputs, rows, directions, positions)
        found.setdefault(trained.name, {})[seed] = heights
    return Landscapes(
        task=task.name,
        of=of,
        height_name=_TASK_LOSS_NAMES[task.kind] if of == "task" else "training loss",
        positions=positions,
        schedule=schedule_of(task, options),
        row_words=row_words(len(part), len(task.train), "training"),
        losses=tuple(Landscape(name, tuple(own), np.stack(list(own.values()))) for name, own in found.items()),
        sentences=tuple(sentences),
        two_d=two_d,
    )


def random_direction(model: nn.Module, seed: int, number: int = 0) -> Direction:
    """Return a normal draw, with each filter scaled to the norm of the model's (Li et al., 2018, section 4).

    A filter computes one output channel; in a fully connected layer it is the row of an output neuron. Parameters of
    fewer than two dimensions, and frozen ones, do not move.
    """
    draws = torch_generator(seed, "landscape direction", number)
    direction: Direction = {}
    for name, parameter in model.named_parameters():
        # Drawn for every parameter, and on the CPU, so that draws depend neither on which ones move nor on the device.
        draw = torch.randn(parameter.shape, generator=draws, dtype=torch.float64)
        if parameter.dim() > 1 and parameter.requires_grad:
            direction[name] = _filter_normalised(draw, parameter.detach().to("cpu", torch.float64)).to(parameter)
    if not direction:
        raise InputError("a landscape needs weights with filters, but the model has only parameters of one dimension")
    return direction


def _filter_normalised(draw: Tensor, weights: Tensor) -> Tensor:
    draw_norms, norms = (tensor.flatten(1).norm(dim=1) for tensor in (draw, weights))
    factors = torch.where(draw_norms > 0, norms / draw_norms, 0.0)
    return draw * factors.reshape(-1, *[1] * (draw.dim() - 1))


def heights_around(
    model: nn.Module, loss: nn.Module, inputs: Inputs, rows: Rows, directions: Sequence[Direction],
    positions: FloatArray,
) -> FloatArray:  # fmt: skip
    """Return the loss on the rows at the model's weights plus multiples of one direction, or of two.

    The model is called in its current mode and not changed.
    """
    criterion = RowLoss(loss)
    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
    heights = np.empty((len(positions),) * len(directions))
    with torch.no_grad():
        for index in tracked(np.ndindex(heights.shape), "landscape", total=heights.size):
            moved = dict(weights)
            # The last axis is the first direction, as in a picture.
            for place, direction in zip(reversed(index), directions, strict=True):
                for name, way in direction.items():
                    moved[name] = moved[name] + float(positions[place]) * way
            batches = pieces(inputs, _BATCH)
            outputs = torch.cat([functional_call(model, moved, *arguments(batch)) for batch in batches])
            heights[index] = float(criterion(outputs, rows))
    return heights


_MOST_BESIDE = 3
_LEVELS = 13
_FAR_APART = 1000.0  # a bowl should look like one, so the axis stays linear longer than elsewhere


@style.figure_style()
def draw_landscapes(data: Landscapes) -> Figure:
    """Draw all landscapes in one panel; in two dimensions, or if their heights cannot be compared, each in its own."""
    if not data.losses:
        return style.sentence_figure("; ".join(data.sentences))
    figure = _contours(data) if data.two_d else _lines(data)
    seeds = max(len(landscape.seeds) for landscape in data.losses)
    averaged = f"mean of {seeds} seeds" if data.two_d and seeds > 1 else style.band_words(seeds)
    about = f"{data.task}, {data.schedule}, {data.row_words}"
    style.add_note(figure, about, averaged, diverged=data.sentences)
    return figure


def _lines(data: Landscapes) -> Figure:
    is_apart = data.of == "training" and len(data.losses) > 1
    groups = [[landscape] for landscape in data.losses] if is_apart else [list(data.losses)]
    figure, grid = style.panels(len(groups), most=_MOST_BESIDE, height=1.9 if is_apart else 2.25, sharex=True)
    for number, (axes, group) in enumerate(zip(grid, groups, strict=True)):
        bands = [Band(one.name, data.positions, *mean_and_deviation(one.heights)) for one in group]
        style.draw_bands(axes, bands, first=number, far_apart=_FAR_APART)
        axes.set_title(style.shown_name(group[0].name) if is_apart else "")
        axes.set_xlim(data.positions[0], data.positions[-1])
        axes.locator_params(axis="x", nbins=4)
    grid[0].set_ylabel(data.height_name)
    for axes in grid[-_MOST_BESIDE:]:
        axes.set_xlabel("position (filter norms)" if is_apart else "position along a direction (filter norms)")
    if not is_apart:
        style.add_legend(figure, grid[0])
    return figure


def _contours(data: Landscapes) -> Figure:
    height = 2.4 if len(data.losses) < _MOST_BESIDE else 2.05
    figure, grid = style.panels(len(data.losses), most=_MOST_BESIDE, height=height, sharex=True, sharey=True)
    together = np.stack([landscape.mean for landscape in data.losses]) if data.of == "task" else None
    for axes, landscape in zip(grid, data.losses, strict=True):
        levels = _levels(landscape.mean if together is None else together)
        filled = _draw_contours(axes, data.positions, landscape.mean, levels)
        axes.set_title(style.shown_name(landscape.name))
        axes.set_xlabel("first direction (filter norms)")
        axes.label_outer()
        if together is None or axes is grid[-1]:  # one bar for all if they have the same levels
            _add_colour_bar(figure, filled, [axes] if together is None else grid, data.height_name)
    grid[0].set_ylabel("second direction (filter norms)")
    return figure


def _draw_contours(axes: Axes, positions: FloatArray, heights: FloatArray, levels: FloatArray) -> "QuadContourSet":
    from matplotlib import colormaps
    from matplotlib.colors import BoundaryNorm, ListedColormap

    # One colour per level, so that equal colours are equal heights whatever the scale.
    steps = len(levels) - 1
    colours = ListedColormap(colormaps["viridis"](np.linspace(0.05, 0.95, steps)))
    finite = np.ma.masked_invalid(heights)
    norm = BoundaryNorm(levels, steps)
    filled = axes.contourf(positions, positions, finite, levels=levels, cmap=colours, norm=norm)
    axes.contour(positions, positions, finite, levels=levels, colors="white", linewidths=0.3)
    axes.plot([0], [0], marker="+", color="white", markersize=5, linestyle="none")
    axes.set_aspect("equal")
    axes.locator_params(nbins=4)
    return filled


def _add_colour_bar(figure: Figure, filled: "QuadContourSet", grid: list[Axes], label: str) -> None:
    ticks = list(filled.levels)[::2]
    bar = figure.colorbar(filled, ax=grid, label=label, shrink=0.9, ticks=ticks, spacing="uniform")
    bar.ax.set_yticklabels([f"{level:.3g}" for level in ticks])
    bar.ax.minorticks_off()
    bar.outline.set_linewidth(0)


def _levels(heights: FloatArray) -> FloatArray:
    found = heights[np.isfinite(heights)]
    low, high = (float(found.min()), float(found.max())) if found.size else (0.0, 1.0)
    if low == high:
        low, high = low - 0.5, high + 0.5
    levels: FloatArray = (np.geomspace if style.is_far_apart(found) else np.linspace)(low, high, _LEVELS)
    levels[[0, -1]] = np.nextafter(low, -np.inf), np.nextafter(high, np.inf)  # rounding must not exclude an end
    return levels
