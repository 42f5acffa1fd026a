"""Size against fitness: a dot for each loss that was trained, the front as steps."""

from typing import TYPE_CHECKING

from evomal.analysis.fronts import Front
from evomal.report.harmless import cut
from evomal.report.style import BLUE, GREY, figure_style, in_figure, new_figure, sentence_figure
from evomal.report.value_axis import counting_axis, cut_axis, drawable, label_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_HEIGHT = 2.9
_LONGEST_TITLE = 48


def draw_front(data: Front) -> "Figure":
    """A figure of column width; losses beyond the axis are marked at its edge."""
    if not data.points:
        return sentence_figure(data.sentence)
    figure = new_figure("column", _HEIGHT)
    others = [point for point in data.points if not point.is_on_front]
    with figure_style():
        axes = figure.subplots()
        axes.set_title(in_figure(cut(f"{data.method}, {data.task}", _LONGEST_TITLE)))
        axes.set_xlabel(f"size ({data.unit})" if data.unit else "size")
        axes.set_ylabel(label_of(data.metric, higher_is_better=data.higher_is_better))
        low, high = cut_axis(axes, [point.value for point in data.points], higher_is_better=data.higher_is_better)
        beyond = [point for point in data.points if not low <= point.value <= high]
        within = [point for point in others if low <= point.value <= high]
        axes.scatter(
            [point.size for point in within], [point.value for point in within], s=9, color=GREY, alpha=0.6,
            linewidth=0, label=f"trained with ({len(data.points)})",
        )  # fmt: skip
        sizes, values = [point.size for point in data.best], drawable([point.value for point in data.best])
        # Beyond the last step nothing is better, so that the line goes on to the largest.
        steps = ([*sizes, data.points[-1].size], [*values, values[-1]])
        axes.step(*steps, where="post", color=BLUE)
        axes.plot(sizes, values, color=BLUE, linestyle="", marker="o", markersize=4, label=f"front ({len(sizes)})")
        if beyond:
            edge = low if data.higher_is_better else high
            axes.plot(
                [point.size for point in beyond], [edge] * len(beyond), color=GREY, linestyle="", markersize=4,
                marker="v" if data.higher_is_better else "^", clip_on=False, label=f"beyond the axis ({len(beyond)})",
            )  # fmt: skip
        axes.set_xlim(left=0)
        counting_axis(axes)
        figure.legend(
            loc="outside lower center", ncols=3, handlelength=1.2, fontsize=7, columnspacing=0.8, handletextpad=0.4
        )
    return figure
