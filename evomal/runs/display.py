"""The progress of a search on standard error: a live display on a terminal, or one line per generation."""

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from time import monotonic
from typing import NamedTuple, Self

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from evomal.expression import Expression
from evomal.methods.candidates import Candidate, State
from evomal.progress import StageBar
from evomal.runs.callbacks import SearchListener
from evomal.runs.finals import Final
from evomal.runs.generations import Generation
from evomal.runs.results import final_text, generation_line, rivals_text
from evomal.tasks.metric_display import ShownMetric
from evomal.text import clock_text, printable

_REFRESHES_PER_SECOND = 4
_UNKNOWN = "—"
_PHASES = {"rivals": "training rivals", "final": "final"}
_LABEL_WIDTH = 14
_ONE_LINE_HEAD = 60  # columns; below that the times get a line of their own
_ROOM_FOR_ECHO = 2  # a terminal writes ^C after the last line; if that wraps, a stale line stays

# A first estimate waits for this share of a generation's steps: the first steps also compile kernels.
_SHARE_FOR_ESTIMATE = 0.05

_LONGEST_SHOWN = 1000  # characters, before they are cut to the terminal's width


class _Position(NamedTuple):
    """How far a search has got; replaced as a whole, since another thread draws it."""

    finished: int
    steps: int
    """Of the current generation, or of the phase outside the generations."""
    since: float
    phase: tuple[str, int] | None = None
    """What is computed outside the generations, and its number of steps."""


class SearchDisplay:
    """Shows one search while it runs, on standard error unless another console is given.

    On a terminal this is a region of a few lines, which stays in its final state: after an interruption, or if the
    result goes to a file, nothing else on the terminal says how far the search got. Elsewhere it is one line per
    generation. `done` generations were recorded before: they do not count in the time left, and `on_generation` counts
    their candidates without printing a line.
    """

    def __init__(
        self,
        generations: int,
        *,
        steps_per_generation: int,
        final_steps: int = 0,
        done: int = 0,
        metric: ShownMetric | None = None,
        console: Console | None = None,
    ) -> None:
        self._generations, self._steps_per_generation, self._done = generations, steps_per_generation, done
        self._final_steps = final_steps
        self._seconds_per_step: float | None = None
        """Of the trainings of rivals, which are like those of the final."""
        self._metric = metric or ShownMetric()
        self._console = console or Console(stderr=True)
        self._live: Live | None = None
        self._began = self._generations_began = monotonic()
        self._position = _Position(done, 0, self._began)
        self._rivals: Mapping[str, float] = {}
        self._final: Final | None = None
        self._counts: Counter[State] = Counter()
        self._best: Candidate | None = None
        self._formula = _UNKNOWN
        self._note = ""
        self._is_over = False

    def __enter__(self) -> Self:
        if self._console.is_interactive:  # which a dumb terminal is not
            self._live = Live(
                self,
                console=self._console,
                refresh_per_second=_REFRESHES_PER_SECOND,
                # What a user's model prints belongs above the region, unless it was sent to a file.
                redirect_stdout=sys.stdout.isatty(),
            )
            self._live.start(refresh=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        if self._live is not None:
            self._live.stop()

    def on_phase(self, name: str, steps: int) -> None:
        """Show the beginning of the rivals or the final."""
        self._position = _Position(self._position.finished, 0, monotonic(), (name, steps))

    def on_rivals(self, scores: Mapping[str, float]) -> None:
        """Show the scores of the rivals; the generations begin now."""
        position, self._rivals = self._position, scores
        if position.phase is not None and position.steps:
            self._seconds_per_step = (monotonic() - position.since) / position.steps
        self._end_phase(f"rivals: {rivals_text(scores, self._metric)}")
        self._generations_began = self._position.since

    def on_final(self, final: Final) -> None:
        """Show the final."""
        self._final = final
        self._end_phase(f"final: {final_text(final, self._metric)}")

    def _end_phase(self, result: str) -> None:
        """End the rivals or the final; without a live display, print the result unless it was recorded before."""
        before, now = self._position, monotonic()
        self._position = _Position(before.finished, 0, now)
        if self._live is None and before.phase is not None:
            self._print(f"{result} ({now - before.since:.1f} s)")

    def on_generation(self, generation: Generation) -> None:
        """Show a generation."""
        self._counts = self._counts + Counter(generation.counts)
        best = generation.best
        if best is not None and (self._best is None or best.standing < self._best.standing):
            formula = self._formula if self._live is None else shown_formula(best)
            self._best, self._formula = best, formula  # together, since another thread draws them
        if generation.number < self._done:
            return
        self._position = _Position(generation.number + 1, 0, monotonic())
        if self._live is None:
            self._print(generation_line(generation, self._generations, self._metric))

    def on_steps(self, stage: str, steps: int) -> None:
        """Count steps of the current generation or phase."""
        self._position = self._position._replace(steps=self._position.steps + steps)

    def say(self, sentence: str) -> None:
        """Show a sentence; may be called by a signal handler."""
        if self._live is None:
            self._print(sentence)
        else:
            self._note = sentence

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        yield from self._head(width)
        if self._rivals:
            yield _row("rivals", rivals_text(self._rivals, self._metric))
        metric = self._metric
        best = _UNKNOWN if self._best is None else f"{metric.name} {metric.text(self._best.fitness)}".strip()
        yield _row("best", best, style="bold")
        yield _row("best formula", self._formula)
        if self._final is not None:
            yield _row("final", final_text(self._final, self._metric), style="bold")
        counts = self._counts
        entries = [f"{state} {counts[state]}" for state in State if counts[state]]
        for index, line in enumerate(_folded(entries, width - _LABEL_WIDTH - _ROOM_FOR_ECHO)):
            yield _row("" if index else "candidates", line)
        if self._note and not self._is_over:
            yield Text(printable(self._note), style="yellow", no_wrap=True, overflow="ellipsis")

    def _head(self, width: int) -> RenderResult:
        position, now = self._position, monotonic()
        total = self._generations
        if self._is_over:
            # An interrupted generation is computed again on resuming, so it does not count.
            place, reached = f"{position.finished} of {total} generations", float(position.finished)
        elif position.phase is not None:
            place, reached = _PHASES[position.phase[0]], total * self._share(position)
        else:
            place = f"generation {min(position.finished + 1, total)} of {total}"
            reached = position.finished + self._share(position)
        label = Text(place, no_wrap=True, overflow="ellipsis")
        bar = ProgressBar(total, reached, complete_style="cyan", finished_style="green")
        times = [Text(clock_text(now - self._began), no_wrap=True)]
        if not self._is_over:
            left = self._seconds_left(position, now)
            times.append(Text(f"{_UNKNOWN if left is None else clock_text(left):>7} left", no_wrap=True))
        head = Table.grid(padding=(0, 2), expand=True)
        head.add_column(min_width=len(f"generation {total} of {total}"))
        head.add_column(ratio=1)
        is_narrow = width < _ONE_LINE_HEAD
        head.add_row(label, bar, *([] if is_narrow else times))
        yield head
        if is_narrow:
            yield Text("  ", no_wrap=True, overflow="ellipsis").join(times)

    def _share(self, position: _Position) -> float:
        steps = self._steps_per_generation if position.phase is None else position.phase[1]
        return min(1.0, position.steps / steps) if steps else 0.0

    def _seconds_left(self, position: _Position, now: float) -> float | None:
        computed, share = position.finished - self._done, self._share(position)
        if position.phase is not None:
            return (now - position.since) * (1 / share - 1) if share >= _SHARE_FOR_ESTIMATE else None
        if computed:
            each = (position.since - self._generations_began) / computed
        elif share >= _SHARE_FOR_ESTIMATE:
            each = (now - self._generations_began) / share
        else:
            return None
        remaining = max(0, self._generations - position.finished)
        # A generation that takes longer than the others does not reduce the time of those that follow.
        left = max(each * remaining - (now - position.since), each * (remaining - 1), 0.0)
        return left + self._final_steps * (self._seconds_per_step or 0.0)

    def _print(self, line: str) -> None:
        self._console.print(Text(printable(line)), soft_wrap=True)


def shown_formula(candidate: Candidate) -> str:
    """The simplified formula with its weights; the genome's own text where there is none."""
    try:
        text = Expression.parse(candidate.genome).formula(candidate.weights or None)
    except Exception:  # a genome need not be an expression, and a formula that cannot be shown must not end a search
        text = candidate.genome
    return printable(text[:_LONGEST_SHOWN])


def _row(label: str, value: str, style: str = "") -> Text:
    return Text.assemble(
        (f"{label:<{_LABEL_WIDTH}}", "dim"), (printable(value), style), no_wrap=True, overflow="ellipsis"
    )  # fmt: skip


def _folded(entries: Sequence[str], width: int) -> list[str]:
    """The entries with dots between them, in as few lines as possible."""
    lines = [entries[0] if entries else _UNKNOWN]
    for entry in entries[1:]:
        longer = f"{lines[-1]} · {entry}"
        if len(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(entry)
    return lines


def with_display(progress: bool, listener: SearchListener | None) -> AbstractContextManager[SearchListener | None]:
    """A context with the given listener; with `progress` and no listener, with a display on standard error."""
    return ProgressDisplay() if progress and listener is None else nullcontext(listener)


class ProgressDisplay:
    """Shows searches and the trainings of comparisons on standard error; a context.

    On a terminal a search is a region of a few lines and trainings are a bar with the time left; elsewhere both are
    lines. `announce` and `expect` end the display of a search.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console
        self._search: SearchDisplay | None = None
        self._bar = StageBar(console)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def check(self) -> None:
        """Called after what is shown has changed; a subclass may raise an error to stop the work."""

    def close(self) -> None:
        """Leave what is shown in its final state."""
        self._bar.close()
        self._end_search()

    def _end_search(self) -> None:
        if self._search is not None:
            self._search.__exit__()
            self._search = None

    def on_start(
        self, *, generations: int, steps: int, final_steps: int, recorded: Sequence[Generation], metric: ShownMetric
    ) -> None:
        """Show a new search."""
        self.close()
        # On standard error even on a terminal: standard output is for the result alone.
        search = SearchDisplay(
            generations,
            steps_per_generation=steps,
            final_steps=final_steps,
            done=len(recorded),
            metric=metric,
            console=self._console,
        )
        self._search = search.__enter__()
        for generation in recorded:
            search.on_generation(generation)

    def on_phase(self, name: str, steps: int) -> None:
        """Show the beginning of the rivals or the final: outside of a search, as trainings."""
        if self._search is not None:
            self._search.on_phase(name, steps)
        else:
            self._bar.announce(_PHASES[name])
            self._bar.expect(steps)

    def on_steps(self, stage: str, steps: int) -> None:
        """Show steps of a search or of trainings."""
        if self._search is not None:
            self._search.on_steps(stage, steps)
        else:
            self._bar.advance(steps)
        self.check()

    def on_rivals(self, scores: Mapping[str, float]) -> None:
        """Show the scores of the rivals."""
        if self._search is not None:
            self._search.on_rivals(scores)
        self.check()

    def on_generation(self, generation: Generation) -> None:
        """Show a generation."""
        if self._search is not None:
            self._search.on_generation(generation)
        self.check()

    def on_final(self, final: Final) -> None:
        """Show the final."""
        if self._search is not None:
            self._search.on_final(final)

    def expect(self, steps: int) -> None:
        """Show a bar for trainings of that many steps."""
        self._end_search()
        self._bar.expect(steps)

    def announce(self, sentence: str) -> None:
        """Show which stage comes next."""
        self._end_search()
        self._bar.announce(sentence)
        self.check()

    def say(self, sentence: str) -> None:
        """Show a sentence, beside a search if there is one."""
        if self._search is not None:
            self._search.say(sentence)
        else:
            self._bar.say(f"evomal: {sentence}")
