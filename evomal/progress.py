"""Progress bars for long work, on a terminal only."""

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

Item = TypeVar("Item")
StepsDone = Callable[[int], None]
"""Called with the number of steps done since the last call."""


def tracked(items: Iterable[Item], description: str, *, total: int, shown: bool = True) -> Iterator[Item]:
    """The items, with a bar and the time left on standard error while they are worked through."""
    if not shown or not sys.stderr.isatty():
        yield from items
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield from progress.track(items, total=total, description=description)
