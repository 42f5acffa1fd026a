"""The lines that say what a figure shows: `evomal analyse` prints them, and pages of campaigns quote them."""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from evomal.figures.ancestry import Ancestry, change_lines
from evomal.figures.data import NOTHING_TRAINED
from evomal.figures.filter_shares import FilterShares
from evomal.figures.front import Front, formula_of
from evomal.figures.known_losses import NOT_MEASURED, RunHeadroom
from evomal.figures.landscape import UNMOVED, Landscapes
from evomal.figures.learning_rate import RateCurves
from evomal.figures.run_times import RunTimes, described, unit_of
from evomal.figures.rungs import NO_RUNGS, RungSteps
from evomal.figures.search_curves import SearchCurves
from evomal.figures.shape_panels import ShapePanels, Surfaces
from evomal.figures.style import FloatArray
from evomal.figures.training_curves import TrainingCurves
from evomal.paper.behaviour import OUTPUTS, Behaviours
from evomal.paper.representations import Representations
from evomal.paper.smoothing_cost import WITH, WITHOUT, SmoothingCost
from evomal.tasks.metric_display import ShownMetric, metric_text
from evomal.text import WIDTH, plural, shorten
from evomal.verdict.words import schedule_words

_MOST_LOSSES, _MOST_FORMULAS, _MOST_STEPS = 12, 5, 8


def shape_lines(shapes: ShapePanels) -> Iterator[str]:
    is_regression = shapes.kind == "regression"
    units = ", in standardised units" if shapes.is_standardised else ""
    where = f"the error f - y{units}" if is_regression else f"an output f, C = {shapes.classes}"
    lowest = "lowest" if is_regression else f"lowest as {shapes.rows[0].panels[0].name}"
    yield f"loss and gradient by f over {where}; {lowest}:"
    for row in shapes.rows[:_MOST_LOSSES]:
        places = [
            _lowest(curve.value, shapes.positions) + (f" ({curve.name})" if curve.name else "")
            for curve in row.panels[0].curves
        ]
        shown = ", ".join(places) if len(places) <= 3 else f"{places[0]} to {places[-1]}"
        yield shorten(f"{row.title}: at {shapes.position_name} = {shown}", WIDTH)
    yield from _more(len(shapes.rows))


def _lowest(values: FloatArray, positions: FloatArray) -> str:
    finite = np.where(np.isfinite(values), values, np.inf)
    return f"{positions[finite.argmin()]:.2f}" if np.isfinite(finite).any() else "nowhere"


def surface_lines(surfaces: Surfaces) -> Iterator[str]:
    units = ", in standardised units" if surfaces.is_standardised else ""
    yield f"loss over target y and output f, both from -3 to 3{units}"
    for surface in surfaces.surfaces[:_MOST_LOSSES]:
        finite = surface.value[np.isfinite(surface.value)]
        values = f"from {finite.min():.4g} to {finite.max():.4g}" if finite.size else "nowhere finite"
        yield shorten(f"{surface.name}: {values}", WIDTH)
    yield from _more(len(surfaces.surfaces))


def _more(count: int) -> Iterator[str]:
    if count > _MOST_LOSSES:
        yield f"and {count - _MOST_LOSSES} more"


def behaviour_lines(found: Behaviours) -> Iterator[str]:
    yield f"push δ = -∂L/∂f, non-target / target, at C = {found.classes}"
    for loss in found.losses[:_MOST_LOSSES]:
        yield shorten(loss.name, WIDTH)
        for regime, words in (("null epoch", "null epoch"), ("zero error", "near zero error")):
            pushes = [loss.at(regime, output) for output in OUTPUTS]  # type: ignore[arg-type]
            formulas = " / ".join(push.text for push in pushes)
            values = " / ".join(f"{push.value:.4g}" for push in pushes)
            is_same = formulas.replace("oo", "inf") == values
            yield shorten(f"  {words}: {values}" + ("" if is_same else f"  ({formulas})"), WIDTH)
        yield f"  {loss.sentence}"
        by_epsilon = [push for push in loss.deltas if push.differs_by_epsilon]
        if by_epsilon:
            places = ", ".join(f"{push.exact:.4g} ({push.output}, {push.regime})" for push in by_epsilon)
            yield shorten(f"  with ε = 1e-7 it is {places}", WIDTH)
        numeric = sum(push.how == "numeric" for push in loss.deltas)
        if numeric:
            yield f"  {numeric} of {len(loss.deltas)} are numeric: SymPy found no formula"
    yield from _more(len(found.losses))


def cost_lines(cost: SmoothingCost) -> Iterator[str]:
    yield shorten(f"forward and backward, median of {cost.rounds} rounds; {cost.hardware}", WIDTH)
    for part in (WITH, WITHOUT):
        *others, sparse = cost.names(part)
        for name in others:
            pairs = list(zip(cost.line(part, name), cost.line(part, sparse), strict=True))
            ends = dict.fromkeys((pairs[0], pairs[-1]))
            ratios = ", ".join(f"{slow.median / fast.median:.2f} at {slow.classes}" for slow, fast in ends)
            yield shorten(f"{part}: {name} / sparse = {ratios}", WIDTH)


def curve_lines(data: SearchCurves) -> Iterator[str]:
    lines = []
    for curve in data.curves:
        if curve.against == "generation":
            count, total = int(curve.searches[-1]), curve.total
            n = f"{count}" if count == total else f"{count} of {total}"
            value = ShownMetric(curve.metric).text(curve.mean[-1], curve.deviation[-1])
            after = f"after {plural(int(curve.positions[-1]), 'generation')} (n = {n})"
            lines.append(
                (f"{curve.task}, best validation {curve.metric}", f"{_method_name(curve.method)} {value} {after}")
            )
    return _by_task(lines, data.sentence, *data.notes)


def filter_lines(data: FilterShares) -> Iterator[str]:
    lines = []
    for group in data.groups:
        total = sum(group.totals.values())
        shares = {state: count / total for state, count in group.totals.items()}
        percent = {state: "<1%" if 0 < share < 0.01 else f"{share:.0%}" for state, share in shares.items()}
        counts = ", ".join(f"{count} {state} ({percent[state]})" for state, count in group.totals.items())
        number = f"{plural(total, 'candidate')} of {plural(group.total_searches, 'search')}"
        lines.append((group.task, f"{_method_name(group.method)} {number}: {counts}"))
    return _by_task(lines, data.sentence, *data.notes)


def time_lines(data: RunTimes) -> Iterator[str]:
    lines = []
    for group in data.groups:
        length, unit = unit_of(group.total)
        total = f"{group.total / length:.3g}"
        total += "" if math.isnan(group.deviation) else f" ± {group.deviation / length:.3g}"
        stages = ", ".join(f"{stage} {seconds / length:.3g}" for stage, seconds in group.stages.items())
        text = f"{_method_name(group.method)} {total} {unit}, {described(group)}: {stages or 'no time is recorded'}"
        lines.append((f"{group.task}, {group.hardware}", text))
    return _by_task(lines, data.sentence, *data.notes)


def rung_lines(data: RungSteps) -> Iterator[str]:
    if not data.steps:
        yield NO_RUNGS
        return
    yield f"{data.run.task}, {data.run.method}"
    for step in data.steps:
        count = plural(len(step.candidates), "candidate")
        tau = f", rank correlation {step.agreement:.2f}" if math.isfinite(step.agreement) else ""
        yield f"  rung {step.rung} to {step.rung + 1}: {count}{tau}"


def headroom_lines(data: RunHeadroom) -> Iterator[str]:
    found, run = data.headroom, data.run
    if found is None:
        yield NOT_MEASURED
        return
    seeds = plural(len(found.last(found.baseline).scores), "seed")
    yield f"{run.task}: {seeds}, learning rates as multiples of the task's"
    for name in sorted(found.losses, key=lambda name: found.last(name).mean):
        last = found.last(name)
        yield f"  {name}: {run.shown_metric.text(last.mean, last.deviation)}, {last.rate:g} times"


def front_lines(data: Front) -> Iterator[str]:
    if not data.points:
        yield NOTHING_TRAINED
        return
    trained = f"{len(data.points)} losses trained" if len(data.points) > 1 else "one loss trained"
    run, best = data.run, len(data.best)
    yield f"{run.task}, {run.method}: {trained}, {best} on the front of size and {run.metric}"
    if len(data.points) > 1 and data.points[0].size == data.points[-1].size:
        yield "all have the same size, so the front is the best one"
    if data.unsized:
        yield f"{data.unsized} more are not formulas and have no size"
    shown = data.best[-_MOST_FORMULAS:]  # the fittest
    if len(shown) < len(data.best):
        yield f"  … {len(data.best) - len(shown)} smaller …"
    for point in shown:
        value = metric_text(point.value, data.run.metric)
        yield shorten(f"  size {point.size:>3} {value:>9}  {formula_of(point.candidate)}", WIDTH)


def ancestry_lines(data: Ancestry) -> Iterator[str]:
    if not data.ancestors:
        yield data.sentence
        return
    run, best, count = data.run, data.ancestors[-1], len(data.ancestors) - 1
    ancestors = f"with {plural(count, 'ancestor')}" if count else "without ancestors"
    where = f"in generation {best.candidate.generation + 1}, {ancestors}"
    yield f"{run.task}, {run.method}: {run.metric} {metric_text(best.value, run.metric)} {where}"
    if data.sentence:
        yield data.sentence
    yield from change_lines(data.changes(), most=_MOST_STEPS, length=WIDTH)
    if count:
        yield shorten(f"best {best.candidate.genome}", WIDTH)


def _by_task(pairs: Sequence[tuple[str, str]], *notes: str) -> Iterator[str]:
    """The texts, indented under a heading for each task, then the notes."""
    heading = None
    for task, text in pairs:
        if task != heading:
            heading = task
            yield task
        yield f"  {text}"
    yield from filter(None, notes)


def _method_name(method: str) -> str:
    return f"{shorten(method, 20):<9}"


def landscape_lines(found: Landscapes) -> Iterator[str]:
    yield f"{found.height_name} after {found.schedule} on {found.task}, {found.row_words}"
    for landscape in found.losses:
        yield (
            f"{_loss_name(landscape.name)}: {landscape.centre:.4g} at the weights, {landscape.rise:+.4g} at a distance "
            f"of {found.positions[-1]:g} ({plural(len(landscape.seeds), 'seed')})"
        )
    if found.losses:
        yield UNMOVED
    yield from found.sentences


def training_lines(found: TrainingCurves) -> Iterator[str]:
    yield f"test {found.metric} after {schedule_words(found.steps, found.milestones)} on {found.task}"
    for curve in found.losses:
        trained, count = len(curve.trained), len(curve.scores)
        diverged = "" if trained == count else f", {count - trained} of {count} diverged"
        value = ShownMetric(found.metric).text(curve.test, curve.test_deviation)
        yield f"{_loss_name(curve.name)}: {value} over {plural(trained, 'seed')}{diverged}"
    yield from found.sentences


def representation_lines(found: Representations) -> Iterator[str]:
    yield f"{plural(found.rows, 'test row')} of {found.task} after {found.schedule}, seed {found.seed}"
    for picture in found.losses:
        line = f"{_loss_name(picture.name)}: test {found.metric} {metric_text(picture.test, found.metric)}"
        if picture.same_class_neighbours is not None:
            line += f"; {picture.same_class_neighbours:.1%} of rows have their nearest row in their own class"
        yield f"{line} ({plural(picture.features, 'input')} of {picture.layer})"
    yield from found.sentences


def rate_lines(found: RateCurves) -> Iterator[str]:
    if found.lines:
        first = found.first
        schedule, seeds = schedule_words(first.steps, first.milestones), plural(len(first.seeds), "seed")
        yield f"test {first.metric} after {schedule} on {first.task}, {seeds} at each rate"
    for name in found.lines:
        best = found.best(name)
        if best is None:
            yield f"{_loss_name(name)}: a training diverged at every rate, or no loss was found"
        else:
            value = ShownMetric(first.metric).text(best.mean, best.deviation)
            yield f"{_loss_name(name)}: best at {best.rate:g}, {value}"
    yield from found.sentences


def _loss_name(name: str) -> str:
    return shorten(name, 26)
