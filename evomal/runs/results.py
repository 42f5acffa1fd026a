"""What a search returns: its generations and its best loss, as data and as text."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from evomal.checks import Kind
from evomal.errors import InputError
from evomal.expression import Expression
from evomal.extras import Displayed
from evomal.losses import ExpressionLoss
from evomal.losses.catalogue import specified_loss
from evomal.losses.loss import Loss, Provenance
from evomal.losses.priors import PriorLoss
from evomal.methods import learned_loss, readable
from evomal.methods.candidates import Candidate, Genome
from evomal.runs.finals import Final
from evomal.runs.generations import Generation
from evomal.runs.leads import Scores
from evomal.runs.measured_rivals import Headroom
from evomal.runs.recorded_run import Run
from evomal.runs.trials_of_tasks import TaskValues
from evomal.tasks.metric_display import ShownMetric
from evomal.text import LABEL_WIDTH, labelled, plural, printable, shorten
from evomal.units import Units

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class Best(Displayed):
    """The best loss of a search: the winner of the final, or without a final the candidate of lowest fitness.

    Example:
        >>> loss = result.best.loss()  # doctest: +SKIP
        >>> loss(model(inputs), targets).backward()  # doctest: +SKIP
    """

    genome: Genome
    weights: tuple[float, ...]
    fitness: float
    """The result of its training in the search, lower is better: the metric, or its negative."""
    value: float
    """The metric itself; for several tasks, what the setting `across_tasks` computes from their metrics."""
    generation: int
    kind: Kind
    activation: str
    lr: float | None = None
    """The learning rate that it was trained with; None if it was learned on tasks whose own learning rates differ."""
    rate: float = 1.0
    """The same as a multiple of each task's own."""
    units: Units | None = None
    """The units in which the tasks standardise their targets, if they share them."""
    priors: tuple[float, ...] | None = None
    """The shares of the classes in the training rows, if the loss depends on them and all tasks have the same."""
    scores: tuple[float, ...] = ()
    """The results of its trainings in the final as costs, one per fresh seed; empty without a final."""
    provenance: Provenance = field(default_factory=dict)
    """What the loss and its file say about the search: task, model, method, seed, fitness and learning rate."""

    def __repr__(self) -> str:
        mean = f", mean={self.mean:.4g} of {len(self.scores)}" if self.scores else ""
        return (
            f"Best({shorten(str(self.genome), 60)!r}, fitness={self.fitness:.4g}{mean}, generation={self.generation})"
        )

    @property
    def mean(self) -> float:
        """The mean of the scores; NaN without a final."""
        return Scores(self.scores).mean if self.scores else math.nan

    @property
    def expression(self) -> Expression | None:
        """The tree; None if the losses of the method are not expressions."""
        return self.genome if isinstance(self.genome, Expression) else None

    def formula(self) -> str:
        """The simplified formula, with rounded weights."""
        return readable(self.genome, self.weights)

    def loss(self) -> Loss:
        """The loss as a module that is called as `loss(output, target)`.

        For regression it takes raw outputs and targets: it has the units of its task and standardises both inside. A
        task that standardises its targets uses it without units. Learned on several tasks that differ in their units,
        it has none.
        """
        loss = learned_loss(self.genome, self.weights, kind=self.kind, activation=self.activation)
        if isinstance(loss, ExpressionLoss) and self.priors is not None:
            loss = loss.on_task(self.priors)
        else:
            loss = loss.in_units(self.units)
        loss.provenance = dict(self.provenance)
        return loss


@dataclass(frozen=True)
class Recommended:
    """The loss to use: the best learned one if it leads the best rival on validation, else a known one.

    Example:
        >>> recommended = result.recommended  # doctest: +SKIP
        >>> loss, lr = recommended.loss(), recommended.lr  # doctest: +SKIP
    """

    name: str
    """The name of the rival, or the formula of the learned loss."""
    lr: float | None
    """The learning rate that it was trained with; None: the task's own times `rate`."""
    kind: Kind
    learned: Best | None = None
    """The learned loss; None where a rival is recommended."""
    rate: float = 1.0
    """The learning rate as a multiple of each task's own."""
    units: Units | None = None
    """The units in which the tasks standardise their targets, if they share them."""
    priors: tuple[float, ...] | None = None
    """The shares of the classes in the training rows, if the loss depends on them and all tasks have the same."""

    def loss(self) -> Loss:
        """The loss as a module that is called as `loss(output, target)`, with the units and priors of its task.

        Learned on several tasks that differ in them, it has none: on a task it takes those of the task, and in a
        training loop of your own `balanced-softmax` and `class-weighted-ce` need `with_priors`.
        """
        if self.learned is not None:
            return self.learned.loss()
        loss = specified_loss(self.name, kind=self.kind)
        if isinstance(loss, PriorLoss):
            return loss if self.priors is None else loss.on_task(self.priors)
        return loss.in_units(self.units)


@dataclass(frozen=True)
class SearchResult(Displayed):
    """What a search found, returned by `evomal.search`. Print it to see the summary.

    Example:
        >>> print(result)  # doctest: +SKIP
        best loss    (f - y)**2 + 0.31*abs(f)
        validation   mse 0.672 ± 0.017 (mean of 3 fresh seeds), found in generation 4; in the search 0.6492
        rivals       mse 0.668 ± 0.014, mae 0.701 ± 0.02, huber 0.67 ± 0.015 (the same seeds)
        final        no lead over mse
        candidates   71 evaluated, 25 cached, 40 dead gradient, 114 rejected
        ended        all 10 generations are done, after 93.4 s
        files        runs/diabetes-evomal-0
    """

    best: Best | None
    """The best loss; None when no candidate was trained successfully."""
    history: tuple[Generation, ...]
    """One entry per generation."""
    front: tuple[Candidate, ...]
    """Candidates that are best for their size or any smaller size, smallest first."""
    ending: str
    """Why the search stopped."""
    folder: Path | None
    """The folder of the run; None when it was not recorded."""
    seconds: float
    forced: tuple[str, ...] = ()
    """Differences in settings or versions despite which the run was resumed; the result may not be reproducible."""
    rivals: Mapping[str, float] = field(default_factory=dict)
    """Fitness of the baseline (the first entry) and of the other known losses that fit the task, by name. Each is
    trained once, as candidates are; infinite if the training diverged."""
    final: Final | None = None
    """The best candidates and the rivals trained again with fresh seeds; None when `finalists` is 0."""
    metric: str = ""
    """The metric that fitness is computed from."""
    higher_is_better: bool = False
    """Whether higher values of the metric are better, in which case fitness is its negative."""
    headroom: Headroom | None = None
    """The rivals on every rung; None if candidates are trained at one learning rate only."""
    by_task: tuple[TaskValues, ...] = ()
    """The final on each of several tasks; empty for one task, and if fitness is the mean of their costs."""
    final_rows: Mapping[str, int] = field(default_factory=dict)
    """By the name of a task, the number of its validation rows that only the final used; tasks without such rows are
    left out."""
    reused_rows: Mapping[str, int] = field(default_factory=dict)
    """By the name of a task, the number of validation rows on which the final compared losses that the same rows had
    chosen; tasks whose final had rows or splits of its own are left out, and those whose number of rows is unknown."""
    priors: tuple[float, ...] | None = None
    """The shares of the classes in the training rows, or in a sample of rows that are read while a model trains; None
    unless a known loss that depends on them is advised, and all tasks have the same."""
    failures: Mapping[str, int] = field(default_factory=dict)
    """The most frequent reasons why candidates failed, and how often each occurred."""
    run: Run | None = field(default=None, repr=False, compare=False)
    """All candidates and settings, as `evomal.load_run` reads them from a recorded search."""

    def __repr__(self) -> str:
        rivals = ", ".join(f"{name} {fitness:.4g}" for name, fitness in self.rivals.items())
        verdict = "" if self.final is None else f", {self.final.verdict(self.metric)}"
        return (
            f"SearchResult(best={self.best!r}, rivals=({rivals}){verdict}, {plural(len(self.history), 'generation')})"
        )

    def __str__(self) -> str:
        return self.summary()

    @property
    def recommended(self) -> Recommended | None:
        """The loss to use; None without a final, which alone can tell.

        It is the best learned loss if it leads the best rival in the final, else that rival if it leads the baseline,
        else the baseline: as far as validation can tell, a search never recommends a loss worse than a known one.
        """
        if self.final is None or self.best is None:
            return None
        if self.final.leads:
            best = self.best
            return Recommended(best.formula(), best.lr, best.kind, best, best.rate, best.units, best.priors)
        name = self.final.advised
        return Recommended(
            name, self.final.advised_lr, self.best.kind, rate=self.final.advised_rate,
            units=self.best.units, priors=self.priors,
        )  # fmt: skip

    @property
    def counts(self) -> dict[str, int]:
        """Number of candidates in each state, without elites."""
        return total_counts(self.history)

    def value(self, fitness: float) -> float:
        """The value of the metric for a fitness."""
        return self.shown_metric.value(fitness)

    @property
    def shown_metric(self) -> ShownMetric:
        """How fitness is shown to people."""
        return ShownMetric(self.metric, self.higher_is_better)

    def to_dataframe(self) -> "DataFrame":
        """Return all candidates of the search as a pandas DataFrame: see `Run.to_dataframe`.

        Returns:
            One row per candidate.

        Raises:
            InputError: pandas is not installed, or the result was not returned by a search.

        Example:
            >>> frame = evomal.search(task).to_dataframe()  # doctest: +SKIP
            >>> frame[frame.state == "evaluated"].nsmallest(5, "fitness")  # doctest: +SKIP
        """
        if self.run is None:
            raise InputError("this result has no candidates, as it was not returned by a search")
        return self.run.to_dataframe()

    def summary(self) -> str:
        """The best loss, its rivals, the verdict of the final and what became of the candidates.

        Returns:
            Labelled lines of at most 80 columns: the text that `evomal search` prints at the end.

        Example:
            >>> print(result.summary())  # doctest: +SKIP
        """
        counts = ", ".join(f"{count} {state}" for state, count in self.counts.items())
        found = f"nothing survived: {counts}" if counts else "nothing was tried: it ended before its first generation"
        lines = [] if self.best is not None else [found]
        for label, text in self._facts(counts):
            lines += labelled(label, printable(text))
        if self.folder is not None:  # in one line, to be copied
            lines.append(f"{'files':<{LABEL_WIDTH}}{printable(str(self.folder))}")
        return "\n".join(lines)

    def _facts(self, counts: str) -> list[tuple[str, str]]:
        facts = summary_lines(self)
        if self.best is not None:
            facts.append(("candidates", counts))
        facts += [("failed", f"{plural(count, 'time')}: {sentence}") for sentence, count in self.failures.items()]
        facts += [("forced", f"resumed although {text}: the result may differ") for text in self.forced]
        facts.append(("ended", f"{self.ending}, after {self.seconds:.1f} s"))
        return facts


def total_counts(history: Sequence[Generation]) -> dict[str, int]:
    """Number of candidates in each state, over all generations."""
    counts: Counter[str] = Counter()
    for generation in history:
        counts.update({str(state): count for state, count in generation.counts.items()})
    return dict(counts)


def generation_line(generation: Generation, generations: int, metric: ShownMetric) -> str:
    """A generation as one line, for logs."""
    counts = ", ".join(f"{count} {state}" for state, count in generation.counts.items())
    best = "nothing yet" if generation.best is None else metric.text(generation.best.fitness)
    seconds = sum(generation.seconds.values())
    return f"generation {generation.number + 1} of {generations}: best {best} ({counts}; {seconds:.1f} s)"


def score_text(score: float | Scores, metric: ShownMetric) -> str:
    """The value of one training, or the mean of several with its standard deviation."""
    return metric.text(score.mean, score.deviation) if isinstance(score, Scores) else metric.text(score)


def rivals_text(rivals: Mapping[str, float] | Mapping[str, Scores], metric: ShownMetric) -> str:
    """Each rival with its score, the baseline first."""
    return ", ".join(f"{name} {score_text(score, metric)}" for name, score in rivals.items())


def final_text(final: Final, metric: ShownMetric) -> str:
    """The winner beside the best rival, and whether it leads."""
    name, rival = final.best_rival
    own = score_text(final.winner[1], metric)
    return f"best {own} ({final.seeds_in_words}); {name} {score_text(rival, metric)}: {final.verdict(metric.name)}"


def summary_lines(result: SearchResult) -> list[tuple[str, str]]:
    """The part of the summary that is about the best loss and its rivals: labels and texts."""
    best, final, metric = result.best, result.final, result.shown_metric
    trained = "one training each" if result.headroom is None else "at their best learning rates"
    rivals = [("rivals", f"{rivals_text(result.rivals, metric)} ({trained})")] if result.rivals else []
    if best is None:
        return rivals
    lines = [("best loss", best.formula())]
    if best.expression is not None:
        lines.append(("expression", f"{best.expression} ({plural(best.expression.size, 'node')})"))
    found = f"found in generation {best.generation + 1}"
    if final is None:
        lines.append(
            ("validation", f"{metric.name} {metric.text(best.fitness)} (the best of one training each), {found}")
        )
        return [*lines, *rivals]
    text = f"{metric.name} {score_text(Scores(best.scores), metric)} (mean of {final.seeds_in_words}), {found}"
    lines.append(("validation", f"{text}; in the search {metric.text(best.fitness)}"))
    lines.append(("rivals", f"{rivals_text(final.rivals, metric)} (the same seeds)"))
    hint = "; `evomal compare` tells whether it does on test" if final.leads else ""
    lines += [
        ("final rows", f"{plural(rows, 'validation row')} of {shorten(name, 60)}, which the search had not seen")
        for name, rows in result.final_rows.items()
    ]
    lines += [
        ("final rows", f"{plural(rows, 'validation row')} of {shorten(name, 60)}, which also chose the losses: the "
         "lead may be smaller on other rows")
        for name, rows in result.reused_rows.items()
        if final.leads and final.may_depend_on_rows
    ]  # fmt: skip
    lines += [("task", f"{shorten(one.task, 60)}: {one.text()}") for one in result.by_task]
    lines.append(("final", final.verdict(metric.name) + hint))
    return lines
