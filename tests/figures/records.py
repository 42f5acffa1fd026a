"""Records written by hand, for analyses of runs."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evomal.methods.candidates import Candidate, State
from evomal.runs import RunStore
from evomal.runs.rows import RecordedTrial

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
) -> Candidate:
    """A candidate that was evaluated where it has a fitness, and rejected where it has none, unless told otherwise."""
    return Candidate(
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


def trials(stage: str, scores: Mapping[str, Sequence[float]], first_seed: int = 0) -> list[RecordedTrial]:
    """What training with each loss came to, seed by seed."""
    seeds = range(len(next(iter(scores.values()))))
    return [
        RecordedTrial(stage=stage, loss=loss, seed=first_seed + seed, score=values[seed], sentence="trained")
        for seed in seeds
        for loss, values in scores.items()
    ]


def record(
    folder: Path, rows: Sequence[Candidate], *, complete: bool = True,
    rivals: Mapping[str, float] | None = None, final: Mapping[str, Sequence[float]] | None = None, **described: Any,
) -> Path:  # fmt: skip
    """Write a run: rivals, a chunk a generation, and what rivals and candidates came to in a final."""
    content = settings(**described)
    if final is not None:
        seeds = len(next(iter(final.values())))
        content["settings"] = {**content["settings"], "final_seeds": seeds}
    with RunStore.create(folder, content) as store:
        store.write_trials(
            trials("rivals", {name: [score] for name, score in (rivals or {}).items()}) if rivals else []
        )
        for generation in sorted({candidate.generation for candidate in rows}):
            store.write_chunk(generation, [candidate for candidate in rows if candidate.generation == generation])
        store.write_trials(trials("final", final, 3000) if final else [])
        if complete:
            store.finish("all generations are done")
    return folder
