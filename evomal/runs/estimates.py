"""How long a search will take, estimated from a few of its steps: what `--dry-run` prints.

Each stage is timed with as many candidates as are expected to reach it, at two numbers of steps: the slope is the time
of one step, the rest is spent once per generation. The search itself is not affected.
"""

import dataclasses
import resource
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from evomal.checks import seed_number
from evomal.engine import Engine, EngineSettings, TrialLoss
from evomal.expression import Expression
from evomal.losses.catalogue import TASK_LOSSES, named_loss
from evomal.losses.expression_loss import starting_weights
from evomal.losses.loss import WeightedTree
from evomal.losses.neural import starting_layers, weights_of
from evomal.methods import Method, Stage, method_named
from evomal.methods.baseline import BASELINE, RIVALS, strong_rivals
from evomal.methods.evaluation import TIMED_AS
from evomal.methods.ml3 import network_loss
from evomal.methods.rungs import Ladder
from evomal.methods.strategy import Strategy
from evomal.randomness import generator, torch_generator
from evomal.runs.finals_trainer import final_trials
from evomal.runs.preparation import KNOWN_SEEDS, prepared_locally
from evomal.settings import SearchSettings
from evomal.tasks.task import Task
from evomal.threads import processors, thread_count

_PROBE_STEPS = {"cuda": (10, 200), "cpu": (1, 100)}
"""Fewest and most steps of a probe. On CUDA, a step is captured after a few; on a CPU, one may take seconds."""
_PROBE_SECONDS = 1.5
_STACKED_CANDIDATES = 10
_LOOPED_CANDIDATES = 2  # trained one after the other, all take the same time
_STEPS_OF = {
    "optimise": "meta_steps",
    "optimise_networks": "meta_steps",
    "evaluate": "training_steps",
    "evaluate_losses": "training_steps",
}
"""The setting with the number of steps of a stage; the filters have none."""
_DIVIDED = frozenset({"rivals", "optimise", "evaluate", "final"})
"""The stages whose work the processes of `jobs` divide; filters take less time than sending."""


@dataclass(frozen=True)
class Estimate:
    """The time and memory that a search is expected to need."""

    stages: dict[str, float]
    """Seconds of the whole search: `setup`, `rivals`, then `filter`, `optimise` and `evaluate` as far as the method has
    them, then `final` where there is one."""
    memory: int
    """The most bytes: of the process on a CPU, of the device on CUDA."""
    generations: int
    population: int
    device: str
    plan: str
    """How the population is worked on, and why."""

    @property
    def seconds(self) -> float:
        """Seconds of all stages."""
        return sum(self.stages.values())


def estimate(
    tasks: Task | Sequence[Task], *, method: str, settings: SearchSettings, seed: int = 0, jobs: int = 1
) -> Estimate:
    """Try a few steps of the search that these settings describe, and extrapolate.

    The processes of `jobs` divide the time of trainings as far as there are processors for their threads. A GPU, which
    they share, counts as one.
    """
    chosen = method_named(method)
    seed = seed_number(seed)
    with thread_count(settings.threads):
        begin = time.perf_counter()
        # This refuses what a search would refuse.
        engine, strategy, ladder = prepared_locally(tasks, chosen, settings, seed)
        probe = _Probe(engine, chosen, seed, jobs)
        del engine  # its data would count as memory in addition to the probe's
        fewest, most = _PROBE_STEPS.get(probe.device.type, _PROBE_STEPS["cpu"])
        short = probe.seconds(fewest)
        setup = time.perf_counter() - begin - sum(short.values())
        slowest = max(short.values()) / fewest
        more = fewest + max(2, min(most, int(_PROBE_SECONDS / slowest)))
        long = probe.seconds(more)
        seconds: dict[Stage, float] = {}
        for stage in long:
            slope = max(0.0, long[stage] - short[stage]) / (more - fewest) if stage in _STEPS_OF else 0.0
            once = max(0.0, short[stage] - fewest * slope)
            steps = getattr(settings, _STEPS_OF[stage]) if stage in _STEPS_OF else 0
            seconds[stage] = (once + slope * steps) * probe.candidates_per_tried(stage)
            seconds[stage] += probe.seconds_of_drawing_again if stage == "optimise" else 0.0
        if ladder is not None:
            return probe.estimate_on_rungs(ladder, settings, strategy, setup, seconds)
        rivals = len(RIVALS[probe.kind]) * seconds["evaluate_losses"]
        # Each pass of a network draws its own initial weights; everything else shares those of the first.
        passes = strategy.generations if "optimise_networks" in seconds else 1
        stages = {"setup": setup + passes * probe.seconds_of_initial_weights, "rivals": rivals}
        for stage in chosen.workload:
            name = TIMED_AS[stage]
            stages[name] = stages.get(name, 0.0) + strategy.generations * seconds[stage]
        finalists = min(settings.finalists, strategy.population * strategy.generations)
        if finalists and chosen is not BASELINE:  # its only loss is a rival already
            stages["final"] = settings.final_seeds * (rivals + finalists * probe.seconds_of_one(seconds))
        return probe.estimate(stages, strategy)


class _Probe:
    """The stages of a generation with the usual number of candidates, and few steps."""

    def __init__(self, engine: Engine, method: Method, seed: int, jobs: int) -> None:
        self.device, self._tasks, self._settings, self._seed = engine.device, engine.tasks, engine.settings, seed
        self.kind = engine.tasks[0].kind
        self._shares = max(1, min(jobs, processors() // engine.threads)) if self.device.type == "cpu" else 1
        self.plan = "; ".join(f"{plan.mode}: {plan.reason}" for plan in engine.plans)
        looped = all(plan.mode == "looped" for plan in engine.plans)
        # Rivals are trained one by one, whatever the method's own losses are.
        self._wanted = {"evaluate_losses": 1, **method.expected_candidates(engine.settings.population)}
        self._tried = {
            stage: min(count, _LOOPED_CANDIDATES) if looped and stage in _STEPS_OF else count
            for stage, count in self._wanted.items()
        }
        self._columns = {stage: self._candidates(stage, count) for stage, count in self._tried.items()}
        self.seconds_of_initial_weights, self.seconds_of_drawing_again, self.memory = 0.0, 0.0, 0

    def seconds(self, steps: int) -> dict[Stage, float]:
        """Seconds of each stage for the candidates that are tried, once everything is compiled and captured."""
        engine = Engine(self._tasks, seed=self._seed, settings=self._with_steps(steps))
        if any(_STEPS_OF.get(stage) == "meta_steps" for stage in self._tried):
            begin = time.perf_counter()
            engine.prepare()
            meta_steps = self._settings.meta_steps
            self.seconds_of_initial_weights = (time.perf_counter() - begin) / steps * meta_steps
            stacks = engine.steps(self._wanted.get("optimise", 0))["optimise"] / engine.settings.meta_steps
            again = engine.share_drawn_again(meta_steps) * self.seconds_of_initial_weights
            self.seconds_of_drawing_again = stacks * again
        found: dict[Stage, float] = {}
        for stage, columns in self._columns.items():
            taken: list[float] = []
            # The first call also compiles and captures; short calls are repeated, as one may have been disturbed.
            while len(taken) < 2 or (len(taken) < 3 and sum(taken) < _PROBE_SECONDS):
                begin = time.perf_counter()
                getattr(engine, stage)(*columns)
                taken.append(time.perf_counter() - begin)
            found[stage] = min(taken)
        self.memory = (
            _peak_memory(self.device) + engine.bytes_kept(self._settings.meta_steps) - engine.bytes_kept(steps)
        )
        return found

    def candidates_per_tried(self, stage: Stage) -> float:
        """The candidates of a generation that are expected at this stage, for each one that is tried."""
        return self._wanted[stage] / self._tried[stage]

    def seconds_of_one(self, seconds: Mapping[Stage, float]) -> float:
        """Seconds of a training with one loss, from the seconds of each stage."""
        stage: Stage = "evaluate" if "evaluate" in seconds else "evaluate_losses"
        return seconds[stage] / self._wanted[stage]

    def estimate_on_rungs(
        self, ladder: Ladder, settings: SearchSettings, strategy: Strategy, setup: float, seconds: Mapping[Stage, float]
    ) -> Estimate:
        """The estimate for candidates trained on rungs, from the time of one training step of one trial."""
        population, generations = strategy.population, strategy.generations
        # Rivals and finals are trained in stacks of this size even if the population is smaller.
        step = self._seconds_of_trial_step(ladder, self._trees(max(population, _STACKED_CANDIDATES)))
        own_step = own_step_in_final = step
        rivals, finalists = strong_rivals(*self._tasks), min(settings.finalists, population * generations)
        if "optimise_networks" in seconds:
            own_step = self._seconds_of_trial_step(ladder, self._networks(population))
            own_step_in_final = self._seconds_of_trial_step(ladder, self._networks(max(1, finalists)))
        stages = {"setup": setup, "rivals": step * len(rivals) * ladder.headroom_steps()}
        proposals = generations * settings.surplus + (settings.first_trees or 0) / population
        stages["filter"] = proposals * sum(seconds.get(stage, 0.0) for stage in ("gradient_norms", "gains"))
        if "optimise_networks" in seconds:
            stages["optimise"] = generations * seconds["optimise_networks"]
        elif ladder.tuned == 1:
            stages["optimise"] = generations * seconds.get("optimise", 0.0)
        stages["evaluate"] = own_step * generations * ladder.steps(population)
        if finalists:
            steps = self._tasks[0].recipe.for_steps(settings.final_steps, settings.milestones).steps
            shared = {"rates": len(ladder.final_rates(1.0)), "seeds": settings.final_seeds}
            trials, own_trials = (final_trials(finalists, count, **shared) for count in (len(rivals), 0))
            stages["final"] = steps * (step * (trials - own_trials) + own_step_in_final * own_trials)
        return self.estimate(stages, strategy)

    def estimate(self, stages: Mapping[str, float], strategy: Strategy) -> Estimate:
        """The estimate, from the seconds that each stage takes in one process."""
        divided = {name: taken / (self._shares if name in _DIVIDED else 1) for name, taken in stages.items()}
        population, generations = strategy.population, strategy.generations
        return Estimate(divided, self.memory, generations, population, str(self.device), self.plan)

    def _trees(self, count: int) -> list[TrialLoss]:
        return [WeightedTree(self._tree, None)] * count

    def _networks(self, count: int) -> list[TrialLoss]:
        layers = starting_layers(generator=torch_generator(self._seed, "trial"))
        return [network_loss(weights_of(layers).tolist(), self.kind) for _ in range(count)]

    def _seconds_of_trial_step(self, ladder: Ladder, losses: list[TrialLoss]) -> float:
        """Seconds of one training step of one trial, when the first rung is trained with these losses."""
        engine = Engine(self._tasks, seed=self._seed, settings=self._with_steps(1))
        if engine.plans[0].mode == "looped":
            losses = losses[:_LOOPED_CANDIDATES]
        count = len(losses)
        # As many as in the search, but none above the task's own, at which the training might diverge and so end.
        highest = max(ladder.rates_of(0))
        rates = [[rate / highest for rate in ladder.rates_of(0)]] * count
        taken = []
        fewest, most = _PROBE_STEPS.get(self.device.type, _PROBE_STEPS["cpu"])
        for steps in (fewest, fewest + most // 2):
            rung = dataclasses.replace(ladder.rungs[0], steps=steps, reference=None)
            engine.try_rates(losses, [rung] * count, rates)  # compiles and captures
            begin = time.perf_counter()
            engine.try_rates(losses, [rung] * count, rates)
            taken.append(time.perf_counter() - begin)
        trials = count * ladder.rates * len(ladder.rungs[0].seeds)
        return max(0.0, taken[1] - taken[0]) / (most // 2) / trials

    def _with_steps(self, steps: int) -> EngineSettings:
        return dataclasses.replace(self._settings, meta_steps=steps, training_steps=steps)

    def _candidates(self, stage: Stage, count: int) -> tuple[Sequence[Any], ...]:
        """Arguments of the stage for `count` candidates."""
        if stage == "optimise_networks":
            layers = starting_layers(generator=torch_generator(self._seed, "trial"))
            return ([weights_of(layers).tolist()] * count,)
        if stage == "evaluate_losses":
            return ([named_loss(TASK_LOSSES[self.kind], kind=self.kind)] * count,)
        weights = starting_weights(self._tree, generator=generator(self._seed, "trial"))
        return [self._tree] * count, [weights] * count

    @property
    def _tree(self) -> Expression:
        """The usual loss of the kind of task: a tree drawn at random may diverge after a few steps, and then takes no
        more time."""
        return Expression.parse(KNOWN_SEEDS[TASK_LOSSES[self.kind]])


def _peak_memory(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_reserved(device)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
