"""How a run stands: whether it came to its end, and what is to be known of the way there."""

from dataclasses import dataclass

from evomal.analysis.chosen_runs import Run
from evomal.runs.recorded_run import RunState, read_run


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
    recorded = read_run(run.folder)
    forced = tuple(entry.differences for entry in recorded.forced)
    return Standing(recorded.state, recorded.ending or "", recorded.created, recorded.written, forced)
