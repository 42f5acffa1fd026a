"""How a run stands: whether it came to its end, and what is to be known of the way there."""

from dataclasses import dataclass

from evomal.analysis.chosen_runs import Run
from evomal.runs import RunStore
from evomal.runs.listing import RunState
from evomal.runs.lock import is_held


@dataclass(frozen=True)
class Standing:
    """Times are in UTC, as recorded."""

    state: RunState
    sentence: str
    """Why it is complete; empty where it is not."""
    created: str
    written: str | None
    """When the last generation was; None where there is none yet."""
    forced: tuple[str, ...]
    """What differed when it was forced to go on."""


def standing_of(run: Run) -> Standing:
    """As its record says, and whether a living process writes on it."""
    with RunStore.read(run.folder) as store:
        ending, chunks, created = store.ending, store.complete_chunks(), store.created
        forced = tuple(entry.differences for entry in store.forced)
    state = RunState.RUNNING if is_held(run.folder) else RunState.INTERRUPTED
    return Standing(
        RunState.COMPLETE if ending is not None else state,
        ending or "",
        created,
        chunks[-1].written if chunks else None,
        forced,
    )
