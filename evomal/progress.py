"""Progress bars for long work, on a terminal only."""

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column

from evomal.text import printable

Item = TypeVar("Item")
Announce = Callable[[str], None]
"""Called with one sentence per stage."""
StepsDone = Callable[[int], None]
"""Called with the number of steps done since the last call."""
StageStepsDone = Callable[[str, int], None]
"""Called with a stage, such as `optimise` or `evaluate`, and the number of its steps done since the last call."""


def tracked(items: Iterable[Item], description: str, *, total: int, shown: bool = True) -> Iterator[Item]:
    """Yields the items, and shows a progress bar with the time left on standard error meanwhile."""
    if not shown or not sys.stderr.isatty():
        yield from items
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield from progress.track(items, total=total, description=description)


class StageBar:
    """A bar over the steps of several stages with the time left, on standard error unless another console is given.

    Without a terminal each stage is one line instead.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._progress: Progress | None = None
        self._row: TaskID | None = None
        self._sentence = ""

    def expect(self, steps: int) -> None:
        """Add steps to the total; the first call shows the bar."""
        if not (self._console.is_interactive or self._console.is_jupyter):
            return
        if self._progress is None or self._row is None:
            one_line = Column(no_wrap=True, overflow="ellipsis")
            self._progress = Progress(
                TextColumn("{task.description}", table_column=one_line, markup=False), BarColumn(bar_width=None),
                TextColumn("{task.percentage:>3.0f}%"), TimeElapsedColumn(table_column=Column(min_width=7)),
                TimeRemainingColumn(table_column=Column(min_width=7)), TextColumn("left"),
                console=self._console, transient=True, expand=True,
            )  # fmt: skip
            self._progress.start()
            self._row = self._progress.add_task(self._sentence or "starting", total=steps)
            return
        (row,) = self._progress.tasks
        self._progress.update(self._row, total=(row.total or 0) + steps)

    def advance(self, steps: int) -> None:
        """Count steps as done."""
        if self._progress is not None and self._row is not None:
            self._progress.advance(self._row, steps)

    def announce(self, sentence: str) -> None:
        """Say which stage comes next: in front of the bar, or in a line of its own where there is none."""
        self._sentence = sentence = printable(sentence)
        if self._progress is None or self._row is None:
            self.say(sentence)
        else:
            self._progress.update(self._row, description=sentence)

    def say(self, sentence: str) -> None:
        """Write a line, above the bar where it is shown."""
        console = self._console if self._progress is None else self._progress.console
        console.print(printable(sentence), markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Remove the bar; another `expect` begins a new one."""
        if self._progress is not None:
            self._progress.stop()
        self._progress, self._row, self._sentence = None, None, ""
