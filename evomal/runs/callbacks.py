"""What is called during a search: functions and objects of the user, and the listener that shows its progress."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from evomal.errors import InputError
from evomal.runs.finals import Final
from evomal.runs.generations import Generation
from evomal.runs.recorded_run import Run
from evomal.runs.results import SearchResult
from evomal.tasks.metric_display import ShownMetric
from evomal.text import short_repr


class SearchCallback:
    """Base class of callbacks: override the methods you need, and pass an object to `evomal.search(callback=…)`.

    An exception that a method raises ends the search and reaches its caller; the search can then be resumed.

    Example:
        >>> class Enough(SearchCallback):
        ...     def on_generation(self, generation):
        ...         return generation.best is not None and generation.best.fitness < 0.1
        >>> result = evomal.search(task, callback=Enough())  # doctest: +SKIP
    """

    def on_start(self, run: Run) -> None:
        """Called before anything is trained.

        Args:
            run: The settings of the search, and the candidates that are recorded already if it is resumed.
        """

    def on_generation(self, generation: Generation) -> bool | None:
        """Called when a generation is complete and recorded.

        Args:
            generation: Its result.

        Returns:
            True to begin no further generation: the search ends as if its time were used up, and can be resumed.
        """
        return None

    def on_end(self, result: SearchResult | None) -> None:
        """Called once at the end.

        Args:
            result: What `evomal.search` returns; None if the search was interrupted or failed.
        """


Callback = SearchCallback | Callable[[Generation], Any]
"""A function is called with each generation, as `SearchCallback.on_generation` is."""


class Callbacks:
    """All callbacks of a search, in the order in which they were given."""

    def __init__(self, given: Callback | Sequence[Callback] | None) -> None:
        single = () if given is None else (given,)
        listed: Any = given if isinstance(given, list | tuple) else single
        for one in listed:
            if isinstance(one, type) or not (isinstance(one, SearchCallback) or callable(one)):
                rule = "callback must be a function, a SearchCallback or a list of them"
                raise InputError(f"{rule} but got {short_repr(one)}")
        self._all: Sequence[Callback] = listed
        self._started: list[SearchCallback] = []

    def on_start(self, run: Run) -> None:
        """The search begins."""
        for one in self._all:
            if isinstance(one, SearchCallback):
                one.on_start(run)
                self._started.append(one)

    def on_generation(self, generation: Generation) -> bool:
        """A generation is complete. Returns whether one of the callbacks ends the search; all are called."""
        functions = [one.on_generation if isinstance(one, SearchCallback) else one for one in self._all]
        returned = [function(generation) for function in functions]
        # Booleans only: a function may return another true value that is not meant to end the search.
        return any(isinstance(value, bool | np.bool_) and bool(value) for value in returned)

    def on_end(self, result: SearchResult | None) -> None:
        """The search has ended. Calls `on_end` of all whose `on_start` returned, then raises their first error."""
        errors = []
        for one in self._started:
            try:
                one.on_end(result)
            except BaseException as error:  # also Ctrl-C: the other callbacks have to be ended
                errors.append(error)
        if errors:
            raise errors[0]


class SearchListener(Protocol):
    """Called during searches and comparisons. An exception that a method raises ends the work."""

    def on_start(
        self, *, generations: int, steps: int, final_steps: int, recorded: Sequence[Generation], metric: ShownMetric
    ) -> None:
        """A search of that many generations begins, each of at most that many steps; some are recorded already.

        Its final will take about `final_steps`; 0 without one.
        """

    def on_phase(self, name: str, steps: int) -> None:
        """The `rivals` or the `final` are trained next, in about that many steps."""

    def on_steps(self, stage: str, steps: int) -> None:
        """That many further steps of a stage are done."""

    def on_rivals(self, scores: Mapping[str, float]) -> None:
        """The rivals are trained, the baseline first; the first generation is next."""

    def on_generation(self, generation: Generation) -> None:
        """A generation is complete."""

    def on_final(self, final: Final) -> None:
        """The final is complete."""

    def expect(self, steps: int) -> None:
        """That many training steps outside any search are next."""

    def announce(self, sentence: str) -> None:
        """The sentence says which stage of a comparison is next."""

    def say(self, sentence: str) -> None:
        """The sentence is about workers: how many there are, or why one was lost."""
