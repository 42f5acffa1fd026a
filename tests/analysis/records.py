"""Records written by hand, for analyses of runs."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evomal.runs import RecordedCandidate, RunStore
from evomal.strategies import State

VERSIONS = {"evomal": "0.1.0", "torch": "2.13.0", "numpy": "2.0.0", "python": "3.11.7"}


def row(
    generation: int,
    index: int,
    fitness: float = math.inf,
    state: str | None = None,
    *,
    origin: str = "initial",
    parents: Sequence[int] = (),
    genome: str = "abs(sub(f, y))",
    weights: Sequence[float] = (),
    **seconds: float,
) -> RecordedCandidate:
    """A candidate that was evaluated where it has a fitness, and rejected where it has none, unless told otherwise."""
    return RecordedCandidate(
        generation=generation,
        index=index,
        origin=origin,
        parents=tuple(parents),
        genome=genome,
        state=State(state or ("evaluated" if math.isfinite(fitness) else "rejected")),
        fitness=fitness,
        weights=tuple(weights),
        seconds=seconds,
    )


def settings(
    *, method: str = "evomal", seed: int = 0, metric: str = "mse", task: str = "planted", **others: Any
) -> dict[str, Any]:
    """As a search records them, with what an analysis reads."""
    return {
        "seed": seed, "method": method, "device": "cpu", "population_mode": "stacked", "chunk": None, "threads": 1,
        "precision": "float32", "versions": VERSIONS, "settings": {"population": 5, "threads": 1},
        "task": {"0": {"name": task, "model": "linear", "metric": metric, "hardships": {"label_noise": 0.0}}},
        **others,
    }  # fmt: skip


def record(folder: Path, rows: Sequence[RecordedCandidate], *, complete: bool = True, **described: Any) -> Path:
    """Write a run: a chunk a generation."""
    with RunStore.create(folder, settings(**described)) as store:
        for generation in sorted({candidate.generation for candidate in rows}):
            store.write_chunk(generation, [candidate for candidate in rows if candidate.generation == generation])
        if complete:
            store.finish("all generations are done")
    return folder
