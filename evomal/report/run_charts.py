"""The charts of a run: how the search went, what became of candidates, the front, the rungs and the known losses.

The live page and the report show the same charts. On the live page, points link to the pages of candidates; a report
is a single file, so its `address` is None and its points are not links.
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np

from evomal.figures.ancestry import Ancestry
from evomal.figures.filter_shares import OUTCOME_COLOURS
from evomal.figures.front import formula_of
from evomal.figures.loss_shape import Curve, are_equal, loss_shape, reference_scale
from evomal.figures.rungs import steps_of
from evomal.figures.style import COLOUR_NAMES, FloatArray
from evomal.losses.loss import Loss
from evomal.methods.candidates import Candidate
from evomal.report.charts import Axis, Chart, LinkedPoint, ShownChart, rows_axis
from evomal.runs.recorded_run import Run
from evomal.runs.views import RunView, Table
from evomal.tasks.metric_display import metric_label, metric_scale
from evomal.text import as_sentence, plural, printable

_MOST_BARS, _MOST_DOTS, _MOST_LINKS, _MOST_ANCESTORS, _MOST_STEPS = 60, 400, 80, 60, 600
_CURVE_COLOURS = ("blue", "vermillion", "green", "purple")
_INNER_SHARE = 0.9  # of the values; the worst ones may lie beyond the axis if they are far off
_ROW_HEIGHT, _ROWS_LEFT = 20.0, 120.0


def metric_axis(run: Run, values: Iterable[float], *, rung: int | None = None) -> Axis:
    """An axis of the metric, which may leave out the worst values if they lie far off."""
    inner = (1 - _INNER_SHARE, 1.0) if run.higher_is_better else (0.0, _INNER_SHARE)
    label = f"validation {metric_label(run.metric, 40)}"
    if rung is not None:
        label = f"{metric_label(run.metric, 30)} on rung {rung}"
    return Axis.over(label, values, inner=inner, scale=metric_scale(run.metric))


def run_charts(view: RunView, run: Run, address: str | None = None) -> list[ShownChart]:
    """All charts of a run except those of its best loss."""
    found = (
        search_chart(view, run), filter_chart(view), front_chart(view, run, address), *rung_charts(view, run, address),
        headroom_chart(run), time_chart(view),
    )  # fmt: skip
    return [chart for chart in found if chart is not None]


def best_values(view: RunView, run: Run) -> FloatArray:
    """The best value of the metric up to each generation; NaN until there is one."""
    return np.where(np.isfinite(view.best_by_generation), _sign(run) * view.best_by_generation, np.nan)


def _sign(run: Run) -> float:
    """What turns an array of fitness into values of the metric."""
    return -1.0 if run.higher_is_better else 1.0


def search_chart(view: RunView, run: Run) -> ShownChart | None:
    """The best value so far by generation, beside the baseline with its deviation, and the best rival.

    Candidates have other seeds and splits than some trainings of the baseline, so that their differences are not
    paired as in `headroom_chart`.
    """
    best = best_values(view, run)
    costs = {name: cost for name, cost in run.rivals.items() if math.isfinite(cost)}
    if not np.isfinite(best).any() and not costs:
        return None
    baseline = next(iter(run.rivals), "")
    rival = min(costs, key=lambda name: costs[name], default="")
    noise = run.headroom.last(baseline).deviation if run.headroom is not None else math.nan
    levels = {name: run.value(costs[name]) for name in dict.fromkeys((baseline, rival)) if name in costs}
    around = [levels[baseline] - noise, levels[baseline] + noise] if baseline in levels and math.isfinite(noise) else []
    last = max(view.generations, view.planned_generations or 0, 1)
    x = Axis("generation", 0.5, last + 0.5, whole=True)
    chart = Chart(
        f"The best validation value so far in {plural(view.generations, 'generation')}, beside the known losses",
        x, metric_axis(run, [*best[np.isfinite(best)], *levels.values(), *around]),
    )  # fmt: skip
    if around:
        chart.band(around[0], around[1], "grey", f"±1 standard deviation of {baseline} between seeds")
    if baseline in levels:
        chart.level(levels[baseline], "grey", "dashed", f"baseline {baseline}")
    if rival in levels and rival != baseline:
        chart.level(levels[rival], "orange", "dotted", f"best rival {rival}")
    points = [(number + 1.0, float(value)) for number, value in enumerate(best)]
    chart.line(_thinned(points), "blue", step=True, name="best candidate so far" if np.isfinite(best).any() else "")
    chart.dots(points[-1:], "blue", radius=3.5)
    return chart.shown("Search")


def filter_chart(view: RunView) -> ShownChart | None:
    """What became of the candidates of each generation, as shares."""
    if not view.generations or not view.counts:
        return None
    # With many generations, each bar stands for several.
    width = math.ceil(view.generations / _MOST_BARS)
    starts = np.arange(0, view.generations, width)
    sums = {state: np.asarray(np.add.reduceat(counts, starts)) for state, counts in view.counts.items()}
    totals = np.maximum(np.sum(list(sums.values()), axis=0), 1)
    x = Axis("generation", 0.5, view.generations + 0.5, whole=True)
    chart = Chart("What became of the candidates of each generation, in percent", x, Axis("candidates (%)", 0.0, 100.0))
    below = np.zeros(len(starts))
    for state, colour in OUTCOME_COLOURS.items():
        if state not in sums:
            continue
        heights = 100 * sums[state] / totals
        for place, start in enumerate(starts):
            left, right = int(start) + 0.5, min(int(start) + width, view.generations) + 0.5
            gap = 0.1 * (right - left)
            chart.bar(left + gap, right - gap, below[place], below[place] + heights[place], COLOUR_NAMES[colour])
        below = below + heights
        chart.legend.append(("area", COLOUR_NAMES[colour], f"{state} ({int(view.counts[state].sum()):,})"))
    return chart.shown("Filters")


def front_chart(view: RunView, run: Run, address: str | None) -> ShownChart | None:
    """Size against the metric; candidates on the front, which no other beats in both, link to their pages."""
    found = view.comparable[view.comparable["size"] > 0]
    if not len(found):
        return None
    front = view.front
    others = found[:: max(1, len(found) // _MOST_DOTS)]
    values = _sign(run) * found["fitness"]
    sizes = found["size"]
    chart = Chart(
        f"Size against validation value of {plural(len(found), 'candidate')}, with the {len(front)} on the front",
        Axis("size", 0.0, float(max(np.quantile(sizes, 0.98), front["size"].max())) + 1, whole=True),
        metric_axis(run, values),
    )  # fmt: skip
    every = "" if len(others) == len(found) else f", {len(others)} shown"
    chart.dots(
        zip(others["size"], _sign(run) * others["fitness"], strict=True),
        "grey",
        name=f"trained ({len(found):,}{every})",
    )
    steps = [
        (float(size), run.value(float(fitness))) for size, fitness in zip(front["size"], front["fitness"], strict=True)
    ]
    chart.line([*steps, (chart.x.high, steps[-1][1])], "blue", step=True)
    links = [candidate_link(run, one, address, x=float(row["size"])) for row, one in _paired(view, front)]
    chart.links(links, "blue", name=f"front ({len(front)})")
    more = "." if address is None else "; open it for its page."
    return chart.shown("Size against fitness", f"Point at a candidate of the front for its formula{more}")


def rung_charts(view: RunView, run: Run, address: str | None) -> list[ShownChart]:
    """Each rung against the next: which candidates rose or fell among those that were trained on both."""
    found = view.evaluated[view.evaluated["rungs"] > 1]
    if not len(found):
        return []
    chosen = found[np.argsort(found["fitness"], kind="stable")[:_MOST_LINKS]]
    candidates = view.read(chosen["rowid"])
    charts = []
    for step in steps_of(run, candidates):
        rung, rows, before, after = step.rung, step.candidates, step.before, step.after
        ranks = [_ranks(values, higher_is_better=run.higher_is_better) for values in (before, after)]
        chart = Chart(
            f"The metric on rung {rung} against rung {rung + 1} of {plural(len(rows), 'candidate')}",
            metric_axis(run, before, rung=rung), metric_axis(run, after, rung=rung + 1),
        )  # fmt: skip
        for name, colour in (("rose", "green"), ("fell", "vermillion"), ("same place", "blue")):
            points = [
                LinkedPoint(before[n], after[n], _page(one, address), hint)
                for n, one in enumerate(rows)
                if _movement(ranks[0][n], ranks[1][n]) == name
                for hint in [f"place {ranks[0][n]} on rung {rung}, {ranks[1][n]} on rung {rung + 1}: {formula_of(one)}"]
            ]
            if points:
                chart.links(points, colour, radius=3.5, name=f"{name} ({len(points)})")
        tau = f"Rank correlation {step.agreement:.2f}. " if math.isfinite(step.agreement) else ""
        best = f"The best {len(rows)} of {len(found):,}. " if len(chosen) < len(found) else ""
        charts.append(chart.shown(f"Rung {rung} to {rung + 1}", f"{tau}{best}Places are among the candidates shown."))
    return charts


def headroom_chart(run: Run) -> ShownChart | None:
    """The known losses at their best learning rates: every seed, the mean, and the noise of differences."""
    found = run.headroom
    if found is None:
        return None
    names = sorted(found.losses, key=lambda name: found.last(name).mean)[:20]
    every = [run.value(cost) for name in names for cost in found.last(name).scores if math.isfinite(cost)]
    height = 70 + _ROW_HEIGHT * len(names)
    axis = Axis.over(
        f"validation {metric_label(run.metric, 40)}", every, inner=(0.05, 0.95), scale=metric_scale(run.metric)
    )
    chart = Chart("The known losses before the search", axis, rows_axis(len(names)), height, names, _ROWS_LEFT)
    own = run.value(found.last(found.baseline).mean)
    if math.isfinite(found.noise):
        chart.bar(own - found.noise, own + found.noise, len(names) - 0.5, -0.5, "pale")
        chart.legend.append(("area", "pale", f"noise of differences from {found.baseline} (95 %)"))
    for place, name in enumerate(names):
        chart.dots([(run.value(cost), place) for cost in found.last(name).scores], "sky")
        chart.dots([(run.value(found.last(name).mean), place)], "vermillion", radius=4)
    chart.legend += [("dot", "sky", "one seed"), ("dot", "vermillion", "mean")]
    return chart.shown(
        "Headroom", as_sentence(f"known losses: {printable(found.sentence(run.shown_metric, found.lr, advise=False))}")
    )


def time_chart(view: RunView) -> ShownChart | None:
    """Seconds of all candidates by stage."""
    stages = {name: seconds for name, seconds in view.stages.items() if 0 < seconds < 1e12}
    if not stages:
        return None
    names = sorted(stages, key=lambda name: -stages[name])[:8]
    minutes = stages[names[0]] >= 300
    scale, unit = (1 / 60, "minutes") if minutes else (1.0, "seconds")
    axis = Axis(unit, 0.0, stages[names[0]] * scale * 1.05)
    height = 70 + _ROW_HEIGHT * len(names)
    chart = Chart(f"Time by stage, in {unit}", axis, rows_axis(len(names)), height, names, _ROWS_LEFT)
    for place, name in enumerate(names):
        chart.bar(0.0, stages[name] * scale, place + 0.35, place - 0.35, "blue")
    return chart.shown("Time by stage")


def shapes_of(loss: Loss, classes: int) -> list[ShownChart]:
    """The shape and the gradient of a loss, beside the task loss."""
    shape = loss_shape(loss, classes=classes)
    curves = shape.curves[:1] if are_equal(shape.curves) else shape.curves
    position = "error f − y" if shape.kind == "regression" else "probability p of the target"
    position += " (standardised)" if shape.is_standardised else ""
    scale = reference_scale(shape)
    times = "" if scale == 1 else f" × {scale:g}"
    references = [Curve(f"{one.name}{times}", one.value * scale, one.gradient * scale) for one in shape.references]
    charts = []
    for quantity, title in (("value", "Shape"), ("gradient", "Gradient")):
        drawn = [np.asarray(getattr(curve, quantity)) for curve in (*curves, *references)]
        axis = Axis.over(
            "loss of a sample" if quantity == "value" else "gradient", np.concatenate(drawn), inner=(0.02, 0.98)
        )
        ends = float(np.round(shape.positions[0], 2)), float(np.round(shape.positions[-1], 2))
        chart = Chart(f"{title} of the loss over the {position}, beside the task loss", Axis(position, *ends), axis)
        chart.level(0.0, "grey", "thin")
        for curve, kind in zip(references, ("dashed", "dotted"), strict=False):
            chart.line(_pairs(shape.positions, getattr(curve, quantity), axis), "grey", kind=kind, name=curve.name)
        for number, curve in enumerate(curves):
            name = "this loss" if len(curves) == 1 else f"this loss, {curve.name.replace('-', '−')}"
            colour = _CURVE_COLOURS[number % len(_CURVE_COLOURS)]
            chart.line(_pairs(shape.positions, getattr(curve, quantity), axis), colour, name=name)
        charts.append(chart.shown(title))
    return charts


def ancestry_chart(found: Ancestry, address: str | None) -> ShownChart | None:
    """The ancestors by generation and value, with the line of the fittest parents; each is a link."""
    rows, run = found.ancestors, found.run
    values = [row.value for row in rows if math.isfinite(row.value)]
    if len(rows) < 2 or not values:
        return None
    first, last = rows[0].candidate.generation + 1, rows[-1].candidate.generation + 1
    chart = Chart(
        f"{plural(len(rows) - 1, 'ancestor')} by generation and validation value",
        Axis("generation", first - 0.5, last + 0.5, whole=True), metric_axis(run, values),
    )  # fmt: skip
    line = set(found.main_line)
    points = [(row.candidate.generation + 1.0, row.value) for row in rows]
    chart.line([points[place] for place in found.main_line], "blue", name="fittest parents")
    others = [place for place in range(len(rows)) if place not in line][-_MOST_ANCESTORS:]
    groups = (
        (others, "grey", "other ancestors"),
        (sorted(line)[:-1][-_MOST_ANCESTORS:], "blue", ""),
        ([len(rows) - 1], "vermillion", "this candidate"),
    )
    for places, colour, name in groups:
        links = [candidate_link(run, rows[place].candidate, address, x=points[place][0]) for place in places]
        chart.links(links, colour, radius=3.5, name=name if links else "")
    copies = f"Copies of a parent are left out ({found.left_out}). " if found.left_out else ""
    return chart.shown("Ancestry", f"{copies}Point at an ancestor for its formula.")


def candidate_link(run: Run, candidate: Candidate, address: str | None, *, x: float) -> LinkedPoint:
    """A point of a candidate, with its value and formula as the hint."""
    value = run.value(candidate.fitness)
    hint = f"{run.shown_metric.text(candidate.fitness)}, size {candidate.size or '?'}: {formula_of(candidate)}"
    return LinkedPoint(x, value, _page(candidate, address), hint)


def _page(candidate: Candidate, address: str | None) -> str | None:
    return None if address is None else f"{address}/candidates/{candidate.generation}/{candidate.index}"


def _paired(view: RunView, front: Table) -> list[tuple[np.void, Candidate]]:
    chosen = front[-_MOST_LINKS:]
    return list(zip(chosen, view.read(chosen["rowid"]), strict=False))


def _pairs(positions: FloatArray, values: FloatArray, axis: Axis) -> list[tuple[float, float]]:
    """The points of a curve, with gaps where it lies far beyond the axis."""
    reach = axis.high - axis.low
    return [
        (float(x), float(y) if axis.low - reach < y < axis.high + reach else math.nan)
        for x, y in zip(positions, values, strict=True)
    ]


def _thinned(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points at which a step curve changes, and the last one; at most about `_MOST_STEPS`."""
    kept = [point for n, point in enumerate(points) if n == 0 or point[1] != points[n - 1][1] or n == len(points) - 1]
    return kept if len(kept) <= _MOST_STEPS else [*kept[:: len(kept) // _MOST_STEPS], kept[-1]]


def _ranks(values: Sequence[float], *, higher_is_better: bool) -> list[int]:
    order = sorted(range(len(values)), key=lambda place: -values[place] if higher_is_better else values[place])
    ranks = [0] * len(values)
    for rank, place in enumerate(order, 1):
        ranks[place] = rank
    return ranks


def _movement(before: int, after: int) -> str:
    return "rose" if after < before else "fell" if after > before else "same place"
