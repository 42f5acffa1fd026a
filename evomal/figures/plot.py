"""Figures of searches and losses: functions that return matplotlib figures, which notebooks show (`evomal.plot`).

Searches are given as results of `evomal.search`, as runs that `evomal.load_run` returned, or as folders, of which all
runs in and below them are taken. `evomal analyse` draws the same figures.
"""

import os
from typing import Any

from evomal.checks import unknown_name
from evomal.errors import InputError
from evomal.figures import ancestry as _ancestry
from evomal.figures import filter_shares as _filter_shares
from evomal.figures import front as _front
from evomal.figures import known_losses as _known_losses
from evomal.figures import run_times as _run_times
from evomal.figures import rungs as _rungs
from evomal.figures import search_curves as _search_curves
from evomal.figures import shape_panels as _shape_panels
from evomal.figures.style import Figure
from evomal.losses.catalogue import CATALOGUE, is_specified, specified_loss
from evomal.losses.files import is_loss_file, load_loss
from evomal.losses.loss import Loss
from evomal.runs.reading import read_runs
from evomal.runs.recorded_run import Run, Runs
from evomal.runs.results import SearchResult
from evomal.text import short_repr

Search = SearchResult | Run | str | os.PathLike[str]

__all__ = ["ancestry", "curves", "filters", "front", "headroom", "rungs", "runtime", "shapes"]


def curves(*searches: Search) -> Figure:
    """Draw the best value so far over generations and evaluations, one line per method, averaged over searches.

    Args:
        searches: Results, runs or folders.

    Returns:
        A matplotlib figure; `figure.savefig("curves.svg")` writes it.

    Raises:
        InputError: There is no search.

    Example:
        >>> evomal.plot.curves(result)  # doctest: +SKIP
        >>> evomal.plot.curves("runs/evomal-0", "runs/random-0").savefig("curves.svg")  # doctest: +SKIP
    """
    return _search_curves.draw_search_curves(_search_curves.search_curves(_runs(searches)))


def filters(*searches: Search) -> Figure:
    """Draw what became of the candidates of each generation.

    Args:
        searches: Results, runs or folders.

    Returns:
        A matplotlib figure.

    Raises:
        InputError: There is no search.

    Example:
        >>> evomal.plot.filters(result)  # doctest: +SKIP
    """
    return _filter_shares.draw_filter_shares(_filter_shares.filter_shares(_runs(searches)))


def runtime(*searches: Search) -> Figure:
    """Draw the time that searches took, by method and stage.

    Args:
        searches: Results, runs or folders.

    Returns:
        A matplotlib figure.

    Raises:
        InputError: There is no search.

    Example:
        >>> evomal.plot.runtime("runs")  # doctest: +SKIP
    """
    return _run_times.draw_run_times(_run_times.run_times(_runs(searches)))


def front(search: Search) -> Figure:
    """Draw fitness over size for every loss that a search trained.

    Args:
        search: A result, a run or a folder with one run.

    Returns:
        A matplotlib figure.

    Raises:
        InputError: There is no search, or there are several.

    Example:
        >>> evomal.plot.front(result)  # doctest: +SKIP
    """
    return _front.draw_front(_front.front(_runs((search,))))


def rungs(search: Search) -> Figure:
    """Draw whether the candidates that led on one rung of a search also lead on the next.

    Args:
        search: A result, a run or a folder with one run.

    Returns:
        A matplotlib figure.

    Raises:
        InputError: There is no search, or there are several.

    Example:
        >>> evomal.plot.rungs(result)  # doctest: +SKIP
    """
    return _rungs.draw_rungs(_rungs.rung_steps(_runs((search,))))


def headroom(search: Search) -> Figure:
    """Draw the known losses that a search began with, beside the noise of their differences.

    Args:
        search: A result, a run or a folder with one run.

    Returns:
        A matplotlib figure.

    Raises:
        InputError: There is no search, or there are several.

    Example:
        >>> evomal.plot.headroom(result)  # doctest: +SKIP
    """
    return _known_losses.draw_headroom(_known_losses.run_headroom(_runs((search,))))


def ancestry(search: Search) -> Figure:
    """Draw the ancestors of the best loss of a search.

    Args:
        search: A result, a run or a folder with one run.

    Returns:
        A matplotlib figure.

    Raises:
        InputError: There is no search, or there are several.

    Example:
        >>> evomal.plot.ancestry(result)  # doctest: +SKIP
    """
    return _ancestry.draw_ancestry(_ancestry.ancestry(_runs((search,))))


def shapes(*losses: Loss | str | os.PathLike[str], classes: int = 10) -> Figure:
    """Draw losses of one kind and their gradients over the output, or for regression over the error.

    Args:
        losses: Losses, names (`focal:gamma=3`) or loss files.
        classes: The number of classes.

    Returns:
        A matplotlib figure.

    Raises:
        InputError: No loss is given, one is given twice, or the losses are of several kinds.

    Example:
        >>> figure = shapes("ce", "focal")
        >>> len(figure.axes)
        8
    """
    if not losses:
        raise InputError("at least one loss must be given but got none")
    named: dict[str, Loss] = {}
    for name, loss in map(_named_loss, losses):
        if name in named:
            raise InputError(f"losses must have different names but {short_repr(name)} is given twice")
        named[name] = loss
    return _shape_panels.draw_shape_panels(_shape_panels.shape_panels(named, classes=classes))


def _named_loss(loss: Any) -> tuple[str, Loss]:
    if isinstance(loss, Loss):
        return loss.catalogue_name or loss.formula(), loss
    if isinstance(loss, str) and is_specified(loss):
        return loss, specified_loss(loss)
    if isinstance(loss, str | os.PathLike) and is_loss_file(loss):
        return str(loss), load_loss(loss)
    raise unknown_name("loss or loss file", loss, CATALOGUE)


def _runs(searches: tuple[Any, ...]) -> Runs:
    """The runs of all that were given, in their order."""
    found: list[Run] = []
    notes: list[str] = []
    for given in searches:
        if isinstance(given, SearchResult) and given.run is not None:
            found.append(given.run)
        elif isinstance(given, Run):
            found.append(given)
        elif isinstance(given, str | os.PathLike):
            below = read_runs([given])
            found += below.runs
            notes += below.notes
        else:
            raise InputError(f"a search must be a result, a run or a folder but got {short_repr(given)}")
    if not found:
        raise InputError(
            "the given folders hold no run" if searches else "at least one search must be given but got none"
        )
    return Runs(tuple(found), notes=tuple(notes))
