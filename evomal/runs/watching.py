"""Watchers of a search: what they are told, and one that shows it to a person."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console

from evomal.progress import StageBar
from evomal.runs.finals import Final
from evomal.runs.generations import Generation
from evomal.runs.search_display import SearchDisplay

Told = Callable[[str], None]
"""Called with one sentence per stage."""


class Watcher(Protocol):
    """Someone who wants to know how a search comes along, more closely than generation by generation."""

    def begun(self, *, generations: int, steps: int, recorded: Sequence[Generation]) -> None:
        """Of so many generations, each of at most so many steps, these are recorded already."""

    def phase(self, name: str, steps: int) -> None:
        """Something outside the generations is computed, `rivals` or `final`, which takes about so many steps."""

    def report(self, stage: str, steps: int) -> None:
        """So many more steps of that stage are done; what this raises ends the search."""

    def rivals(self, scores: Mapping[str, float]) -> None:
        """What training with the known losses came to, the baseline first; before the first generation."""

    def told(self, generation: Generation) -> None:
        """A generation is done."""

    def final(self, final: Final) -> None:
        """The final is over."""

    def expect(self, steps: int) -> None:
        """So many training steps that belong to no search are to come."""

    def announce(self, sentence: str) -> None:
        """Which stage of a comparison comes next."""

    def say(self, sentence: str) -> None:
        """Something to know meanwhile: which workers there are, and what became of them."""


@contextlib.contextmanager
def watched(
    progress: bool, watcher: Watcher | None, told: Told | None
) -> Iterator[tuple[Watcher | None, Told | None]]:  # fmt: skip
    """The watcher and the listener as given, or a display on standard error where one is asked for instead."""
    if not progress or watcher is not None:
        yield watcher, told
        return
    with DisplayWatcher() as shown:
        yield shown, told or shown.announce


def ticking(watcher: Watcher | None) -> Callable[[], None] | None:
    """What asks a watcher again and again whether to go on, while there is nothing to report."""
    return None if watcher is None else lambda: watcher.report("evaluate", 0)


class DisplayWatcher:
    """Shows searches and the trainings of comparisons on standard error; a context.

    On a terminal a search is a region and trainings are a bar with the time left; elsewhere both are lines.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console
        self._display: SearchDisplay | None = None
        self._bar = StageBar(console)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(kind, error, trace)

    def close(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        """Leave what is shown in its final state."""
        self._bar.close()
        self._end_search(kind, error, trace)

    def _end_search(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        if self._display is not None:
            self._display.__exit__(kind, error, trace)
            self._display = None

    def begun(self, *, generations: int, steps: int, recorded: Sequence[Generation]) -> None:
        """Show a search; one that was shown before is over."""
        self.close()
        # Standard error also for people: standard output is for the result alone.
        display = SearchDisplay(generations, steps_per_generation=steps, done=len(recorded), console=self._console)
        self._display = display.__enter__()
        for generation in recorded:
            display.told(generation)

    def phase(self, name: str, steps: int) -> None:
        """Show that something outside the generations is computed."""
        if self._display is not None:
            self._display.phase(name, steps)

    def report(self, stage: str, steps: int) -> None:
        """Take in steps of a search or a training."""
        if self._display is not None:
            self._display.report(stage, steps)
        else:
            self._bar.advance(steps)

    def expect(self, steps: int) -> None:
        """Show a bar for trainings to come; a search that was shown before is over."""
        self._end_search()
        self._bar.expect(steps)

    def announce(self, sentence: str) -> None:
        """Say which stage comes next; a search that was shown before is over."""
        self._end_search()
        self._bar.announce(sentence)

    def rivals(self, scores: Mapping[str, float]) -> None:
        """Show what the known losses came to."""
        if self._display is not None:
            self._display.rivals(scores)

    def told(self, generation: Generation) -> None:
        """Show a generation."""
        if self._display is not None:
            self._display.told(generation)

    def final(self, final: Final) -> None:
        """Show what the final came to."""
        if self._display is not None:
            self._display.final(final)

    def say(self, sentence: str) -> None:
        """Show a sentence, beside the search or without one."""
        if self._display is not None:
            self._display.say(sentence)
        else:
            self._bar.say(f"evomal: {sentence}")
