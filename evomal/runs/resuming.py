"""How a search is described in its record, and when a search may resume a record."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evomal.errors import InputError
from evomal.runs.canonical import Difference
from evomal.runs.executors import threads_of_each
from evomal.runs.store import BEST_NAME, RECORD_NAME, RunStore
from evomal.settings import AUTO_SPACE, WORKPLACE, SearchSettings

BUDGETS = {"max_time", "max_evaluations", "patience", "generations"}
"""Settings that only decide when a search ends; they may be changed on resuming."""
_ADDED_LATER = ("space", "schedule", "warmup", "clip", "final_share", "scaled_to")
"""Settings that the first records did not have: at their defaults they are left out, so that those records match."""
_FREE = {"budgets", "first_budgets", "source", "workplace"}
"""Parts of the description that may differ when a search is resumed."""
_RESOLVED = {"settings.threads"}
"""Settings whose resolved value is recorded beside them: None and the number it stands for do not differ."""


def as_recorded(settings: SearchSettings, folder: Path, *, jobs: int = 1) -> SearchSettings:
    """The settings, in which the folder's record decides those that are not given; unchanged if there is no record.

    `jobs`: the number of processes that share the threads of torch.
    """
    if not os.path.exists(folder / RECORD_NAME):  # also false for a name that no file can have
        return settings
    with RunStore.read(folder) as store:
        threads, tasks, recorded = (store.settings.get(key) for key in ("threads", "task", "settings"))
    changes: dict[str, Any] = {}
    # More than each process has may have been recorded by one with more, or by an earlier version with another rule.
    if settings.threads is None and isinstance(threads, int) and threads <= threads_of_each(jobs, settings):
        changes["threads"] = threads
    if isinstance(recorded, Mapping):
        # Records of several tasks without a rule are from the time when the mean of the costs was the only one.
        is_of_several = isinstance(tasks, Mapping) and len(tasks) > 1
        if settings.across_tasks is None and is_of_several and "across_tasks" not in recorded:
            changes["across_tasks"] = "mean"
        # Records from before the rule are in the paper's space, of which they say nothing.
        if settings.space == (AUTO_SPACE,) and "space" not in recorded:
            changes["space"] = ("paper",)
        # Earlier versions kept no rows for the final.
        if settings.final_share and "final_share" not in recorded:
            changes["final_share"] = 0.0
        if settings.scaled_to != "baseline" and "scaled_to" not in recorded:
            changes["scaled_to"] = "baseline"
    return settings.with_changes(**changes)


def recorded_settings(settings: SearchSettings) -> dict[str, Any]:
    """The settings in the parts of a record: those that can change a number, the budgets, and the workplace."""
    paper = SearchSettings()
    left_out = {name for name in _ADDED_LATER if getattr(settings, name) == getattr(paper, name)}
    if settings.across_tasks in (None, "mean"):
        left_out.add("across_tasks")
    return {
        "settings": settings.model_dump(mode="json", exclude={*BUDGETS, *WORKPLACE, *left_out}),
        "budgets": settings.model_dump(mode="json", include=BUDGETS),
        "workplace": settings.model_dump(mode="json", include={*WORKPLACE}),
    }


def opened_record(folder: Path, description: dict[str, Any], *, force: bool) -> RunStore:
    """The record of the folder: a new one, or the one that is there if it belongs to this search or holds nothing."""
    if not os.path.exists(folder / RECORD_NAME):
        if os.path.lexists(folder / BEST_NAME):  # of something else, and the run would replace it
            raise InputError(f"{folder / BEST_NAME}: exists already, but a new run needs a folder without one")
        return RunStore.create(folder, description)
    store = RunStore.open(folder)
    try:
        differing = _relevant(store.differences(description))
        if differing and not force and store.is_empty:
            store.change_settings(description)  # it ended before anything was computed
        elif differing and not force:
            raise InputError(f"{store.path}: is the record of another search: {'; '.join(map(str, differing))}")
    except BaseException:
        store.close()
        raise
    return store


def note_changes(store: RunStore, description: dict[str, Any], *, is_finished: bool) -> None:
    """Record the budgets of a run that is continued, and the differences that `force` has overruled.

    A complete run is continued if it is given another number of generations and some are left to compute.
    """
    recorded = store.settings
    budgets = recorded.get("budgets")
    planned = budgets.get("generations") if isinstance(budgets, dict) else None
    if store.ending is not None and (is_finished or planned == description["budgets"]["generations"]):
        return
    if budgets != description["budgets"]:
        first = {"first_budgets": recorded.get("first_budgets", budgets)}
        store.change_settings({**recorded, **first, "budgets": description["budgets"]})
    if differing := _relevant(store.differences(description)):
        text = "; ".join(map(str, differing))
        if not store.forced or store.forced[-1].differences != text:
            store.force(differing)


def _is_memory(entry: Difference) -> bool:
    """Whether plans differ in predicted memory only, which earlier versions recorded."""
    if entry.key != "plans" or entry.recorded is None or entry.given is None:
        return False
    try:
        recorded, given = (
            [{name: value for name, value in plan.items() if not name.endswith("_bytes")} for plan in json.loads(text)]
            for text in (entry.recorded, entry.given)
        )
    except (TypeError, ValueError, AttributeError):  # not what evomal writes
        return False
    return recorded == given


def _relevant(differing: Sequence[Difference]) -> list[Difference]:
    """Differences that can change the result, each once: some settings are recorded both as given and as resolved."""
    keys = {entry.key for entry in differing}
    return [
        entry
        for entry in differing
        if entry.key.split(".")[0] not in _FREE
        and entry.key not in _RESOLVED
        and not _is_memory(entry)
        and entry.key.removeprefix("settings.") not in keys - {entry.key}
    ]
