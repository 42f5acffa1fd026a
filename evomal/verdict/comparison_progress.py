"""What is seen of a comparison from Python while it runs: one bar over searches and trainings, or a line per stage."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console

from evomal.progress import StageBar
from evomal.runs import Generation
from evomal.runs.run_loop import Watcher

Told = Callable[[str], None]
"""Called with a sentence per stage."""


class ComparisonWatcher(Watcher, Protocol):
    """Someone who watches the searches of a comparison and then its trainings."""

    def expect(self, steps: int) -> None:
        """So many more training steps are to come."""


@contextlib.contextmanager
def watched(
    progress: bool, watcher: ComparisonWatcher | None, told: Told | None
) -> Iterator[tuple[ComparisonWatcher | None, Told | None]]:
    """The watcher and the listener as given, or a display on standard error where one is asked for instead."""
    if not progress or watcher is not None:
        yield watcher, told
        return
    with ComparisonProgress() as shown:
        yield shown, told or shown.announce


class ComparisonProgress:
    """Shows a comparison on standard error, unless another console is given; a context, after which it is gone."""

    def __init__(self, console: Console | None = None) -> None:
        self._bar = StageBar(console)
        self._left = 0  # steps of the running search that are expected and not done yet
        self._steps = 0  # of one generation

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.close()

    def begun(self, *, generations: int, steps: int, recorded: Sequence[Generation]) -> None:
        """Count the steps of a search that is about to run."""
        self._finish_search()
        self._steps, self._left = steps, steps * (generations - len(recorded))
        self._bar.expect(self._left)

    def report(self, stage: str, steps: int) -> None:
        """Take in steps of a search or a training."""
        self._left = max(0, self._left - steps)
        self._bar.advance(steps)

    def told(self, generation: Generation) -> None:
        """Take in a generation; the steps that its filters have spared are over, too."""
        spared = self._left % self._steps if self._steps else 0
        self._left -= spared
        self._bar.advance(spared)

    def say(self, sentence: str) -> None:
        """Write a line."""
        self._bar.say(sentence)

    def announce(self, sentence: str) -> None:
        """Say which stage comes next."""
        self._bar.announce(sentence)

    def expect(self, steps: int) -> None:
        """Count training steps that are to come."""
        self._finish_search()
        self._bar.expect(steps)

    def _finish_search(self) -> None:
        """A search may end before its last generation."""
        self._bar.advance(self._left)
        self._left = 0
