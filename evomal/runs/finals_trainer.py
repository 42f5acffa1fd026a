"""Trainings outside the generations: the rivals before them, and the final after them."""

import dataclasses
import math
import time
from collections.abc import Iterable, Mapping, Sequence

from torch import nn

from evomal.engine import Fitness, Rung, RungScores, TrialLoss
from evomal.errors import InputError
from evomal.losses.catalogue import specified_loss
from evomal.methods.baseline import RIVALS, require_baseline, strong_rivals, train_rivals
from evomal.methods.candidates import Candidate
from evomal.methods.evaluation import Evaluator, Executor, Failure, SearchContext
from evomal.methods.rungs import Ladder, fresh_numbers
from evomal.methods.several_tasks import common_lr
from evomal.runs.callbacks import SearchListener
from evomal.runs.finals import RUNNERS_UP, Final, best_distinct, final_of, final_seeds, final_so_far, lead_seeds
from evomal.runs.lock import stop_if_requested
from evomal.runs.measured_rivals import Headroom, rivals_of
from evomal.runs.rows import RecordedTrial, TrialStage
from evomal.runs.store import RunStore
from evomal.runs.trials_of_tasks import TaskValues, across_tasks, combined, values_by_task
from evomal.tasks.metric_display import ShownMetric
from evomal.tasks.recipe import final_recipe
from evomal.tasks.task import Task

_RATE_SEEDS = 2  # by which learning rates are chosen
_FINAL_RIVALS = 4  # that enter the final besides the baseline: the best ones before the search
_FEWEST_KEPT = 3
_KEPT_SHARE = 1 / 3  # of the losses whose learning rates were chosen


class FinalsTrainer:
    """Trains rivals and finalists; what is recorded already is read instead of computed."""

    def __init__(
        self, tasks: Sequence[Task], executor: Executor, evaluator: Evaluator, context: SearchContext,
        store: RunStore | None, listener: SearchListener | None,
    ) -> None:  # fmt: skip
        self._tasks, self._executor, self._evaluator = tasks, executor, evaluator
        self._settings, self._seed = context.settings, context.seed
        self._ladder = context.ladder
        rule = context.settings.across_tasks
        self._rule = rule if len(tasks) > 1 and rule != "mean" else None
        """How fitness is computed from the costs on several tasks; None for one task, and for the mean of the costs."""
        self._is_resplit = context.settings.resplit and context.is_exchangeable
        self._shares_rows = not self._is_resplit and self._rule is None
        """Whether costs without a part of the rows are needed, to tell what other rows would show: not where every seed
        has other rows, nor where fitness is computed from the costs on several tasks."""
        self._store, self._listener = store, listener
        self._folder = None if store is None else store.path.parent
        self._report = None if listener is None else listener.on_steps
        self._unrecorded: list[RecordedTrial] = []
        self._next_phase: tuple[str, int] | None = None
        """A phase and its number of steps, announced once something of it is computed: reading takes no time."""
        self._final_steps = tasks[0].recipe.for_steps(context.settings.final_steps).steps
        if self._ladder is not None and context.settings.finalists:
            self._final_rung("final", 1)  # settings that fit no recipe are refused before anything is trained

    @property
    def lr(self) -> float | None:
        """The untuned learning rate of the tasks; None if they differ in it."""
        return common_lr(self._settings, self._tasks)

    @property
    def shared_rows(self) -> dict[str, int]:
        """By the name of each task, the number of validation rows that all trainings before the final share.

        Tasks whose splits are drawn anew are left out.
        """
        if self._ladder is not None and self._is_resplit:
            return {}
        rows = {task.name: task.validation.rows for task in self._tasks}
        return {name: count for name, count in rows.items() if count is not None}

    @property
    def reused_rows(self) -> dict[str, int]:
        """Those that the trainings of the final share, too: of tasks whose final has no rows of its own."""
        own = {task.name for task in self._tasks if task.final is not None}
        return {name: count for name, count in self.shared_rows.items() if name not in own}

    def train_rivals(self) -> dict[str, float]:
        """The scores of the baseline and its rivals, trained as candidates are, with the seeds of the search.

        Raises:
            EvomalError: Training with the task's own loss raises an error of the user's code.
            InputError: The metric has no finite value for the trained model.
        """
        scores = self._train_once() if self._ladder is None else self._train_on_rungs(self._ladder)
        if self._rule is not None:
            self._evaluator.across = across_tasks(self._rule, self._trials())
        if (found := self.headroom) is not None and math.isfinite((best := found.last(found.best)).mean):
            self._evaluator.measured_rivals(found.best, best.rate)
        if self._listener is not None:
            self._listener.on_rivals(scores)
        return scores

    @property
    def headroom(self) -> Headroom | None:
        """The results of the rivals; None if candidates are trained at one learning rate only."""
        return None if self._ladder is None else Headroom.of(self._recorded("rivals"))

    def _train_once(self) -> dict[str, float]:
        task = self._tasks[0]
        if not self._recorded("rivals"):
            names = RIVALS[task.kind]
            self._announce("rivals", len(names) * self._executor.steps(1)["evaluate"])
            begin = time.perf_counter()
            results = train_rivals(names, self._executor, task.kind, report=self._report)
            require_baseline(names[0], results[0], task.metric)
            self._record("rivals", names, self._seed, results, time.perf_counter() - begin)
        return rivals_of(self._recorded("rivals"))

    def _train_on_rungs(self, ladder: Ladder) -> dict[str, float]:
        """Train every rival on every rung; on the longest with more seeds, to measure the noise of differences."""
        names = strong_rivals(*self._tasks)
        entrants = {name: (self._rival(name), ladder.headroom_rates()) for name in names}
        self._next_phase = "rivals", len(names) * ladder.headroom_steps() * len(self._tasks)
        for rung, count in zip(ladder.rungs, ladder.headroom_seeds(), strict=True):
            further = count - len(rung.seeds)
            extended = dataclasses.replace(
                rung,
                seeds=(*rung.seeds, *fresh_numbers(further, self._seed, "headroom seed")),
                splits=rung.splits and (*rung.splits, *fresh_numbers(further, self._seed, "headroom split")),
                reference=None,
                leaves_out=rung is ladder.rungs[-1] and self._shares_rows,
            )
            self._train_or_read("rivals", entrants, extended)
        return rivals_of(self._recorded("rivals"))

    def _require_baseline(self, results: Mapping[str, RungScores | Failure]) -> None:
        """Stop if the task cannot be trained with its own loss, whatever the learning rate."""
        name = strong_rivals(self._tasks[0])[0]
        result = results.get(name)  # None if only a candidate was trained
        if isinstance(result, Failure):
            require_baseline(name, result, self._tasks[0].metric)
        elif result is not None and not math.isfinite(result.cost) and result.is_undefined:
            lost = Fitness(math.inf, "diverged", result.sentence, is_undefined=True)
            require_baseline(name, lost, self._tasks[0].metric)

    def _rival(self, name: str) -> nn.Module:
        return specified_loss(name, kind=self._tasks[0].kind)

    def train_finalists(self, candidates: Sequence[Candidate], rivals: Iterable[str]) -> Final | None:
        """Train finalists and rivals with fresh seeds; None if the settings or the search leave no finalist."""
        names = list(rivals)
        chosen = self._finalists(candidates, names)
        if not chosen:
            return None
        if self._ladder is None:
            return self._train_at_own_rate(chosen, names)
        headroom = self.headroom
        assert headroom is not None
        best = sorted(names, key=lambda name: headroom.last(name).mean)[:_FINAL_RIVALS]
        return self._train_in_stages(self._ladder, headroom, chosen, [*dict.fromkeys([names[0], *best])])

    def _finalists(self, candidates: Sequence[Candidate], rivals: Sequence[str]) -> list[Candidate]:
        """The best candidates that differ from each other; in a final that has begun, those of its record."""
        places = {candidate.place: candidate for candidate in candidates}
        begun = dict.fromkeys(trial.loss for trial in self._recorded("rates") if trial.loss in places)
        if begun:
            return [places[loss] for loss in begun]
        count = self._settings.finalists
        return self._evaluator.first_unlike(best_distinct(candidates, without=rivals), count) if count else []

    def _train_at_own_rate(self, chosen: Sequence[Candidate], names: Sequence[str]) -> Final | None:
        losses = [*names, *(candidate.place for candidate in chosen)]
        seeds = final_seeds(self._settings.final_seeds, self._seed)
        trials = self._recorded("final")
        planned = [(seed, loss) for seed in seeds for loss in losses]
        if [(trial.seed, trial.loss) for trial in trials] != planned[: len(trials)] or len(trials) % len(losses):
            raise self._mismatch()
        missing = seeds[len(trials) // len(losses) :]
        if missing:
            self._announce("final", len(missing) * len(losses) * self._executor.steps(1)["evaluate"])
        kind = self._tasks[0].kind
        for seed in missing:
            stop_if_requested(self._folder)
            begin = time.perf_counter()
            results = [
                *train_rivals(names, self._executor, kind, seed=seed, report=self._report),
                *self._evaluator.train_again(chosen, seed=seed, report=self._report),
            ]
            require_baseline(names[0], results[0], self._tasks[0].metric)
            self._record("final", losses, seed, results, time.perf_counter() - begin)
        return final_of(chosen, self._recorded("final"), seeds=len(seeds))

    def _train_in_stages(
        self, ladder: Ladder, headroom: Headroom, chosen: Sequence[Candidate], names: Sequence[str]
    ) -> Final | None:
        """Try learning rates, then choose the winner, then measure its lead; every stage has fresh seeds.

        If it has no lead, that of the next best is measured with the same seeds.
        """
        losses: dict[str, TrialLoss] = {name: self._rival(name) for name in names}
        losses |= zip((one.place for one in chosen), self._evaluator.losses_of(chosen), strict=True)
        best_rates = {name: headroom.last(name).rate for name in names} | {one.place: one.rate for one in chosen}
        rung, final_count = self._final_rung("rates", _RATE_SEEDS), self._settings.final_seeds
        tried = {loss: (losses[loss], ladder.final_rates(rate)) for loss, rate in best_rates.items()}
        self._next_phase = "final", self._steps_in_stages(ladder, len(chosen), len(names))
        rates = self._train_or_read("rates", tried, rung)
        baseline = names[0]
        ranked = sorted(rates, key=lambda loss: rates[loss].cost)  # stable: of equal ones the first given
        best_candidates = [loss for loss in ranked if loss not in names][: kept_of(len(chosen))]
        best_rivals = [loss for loss in ranked if loss in names][: kept_of(len(names))]
        staying = [*dict.fromkeys([baseline, *best_rivals]), *best_candidates]
        # Two seeds may miss that a learning rate is too high for others. Older records have one rate of each loss here.
        done = self._recorded("final")
        settled = {
            loss: tuple(sorted({trial.rate for trial in done if trial.loss == loss}))
            or ladder.settled_rates(rates[loss].rate)
            for loss in staying
        }
        entrants = {loss: (losses[loss], some) for loss, some in settled.items()}
        self._train_or_read("final", entrants, self._final_rung("final", final_count))
        decided = final_so_far(chosen, self._recorded("final"))
        rung = self._final_rung("lead", lead_seeds(final_count))
        rung = dataclasses.replace(rung, leaves_out=self._shares_rows)
        found = None
        for some in (decided.compared, *((loss,) for loss in decided.runners_up)):
            self._train_or_read("lead", {loss: (losses[loss], (decided.rates[loss],)) for loss in some}, rung)
            trials = [*self._recorded("rates"), *self._recorded("final"), *self._recorded("lead")]
            found = final_of(chosen, trials, seeds=final_count, lr=self.lr)
            if found is None or found.leads:
                break
        return found

    def steps_of_final(self) -> int:
        """About how many steps the final will take; 0 without one."""
        count, seeds = self._settings.finalists, self._settings.final_seeds
        if not count:
            return 0
        if self._ladder is None:
            losses = len(RIVALS[self._tasks[0].kind]) + count
            return seeds * losses * self._executor.steps(1)["evaluate"]
        return self._steps_in_stages(self._ladder, count, len(strong_rivals(*self._tasks)))

    def _steps_in_stages(self, ladder: Ladder, candidates: int, rivals: int) -> int:
        rates, seeds = len(ladder.final_rates(1.0)), self._settings.final_seeds
        return final_trials(candidates, rivals, rates=rates, seeds=seeds) * self._final_steps * len(self._tasks)

    def _final_rung(self, stage: TrialStage, count: int) -> Rung:
        """A rung of full length with fresh seeds."""
        steps = self._final_steps
        recipes = [final_recipe(task.recipe.for_steps(steps), self._settings) for task in self._tasks]
        seeds = fresh_numbers(count, self._seed, "final seed", stage)
        splits = fresh_numbers(count, self._seed, "final split", stage) if self._is_resplit else ()
        return Rung(
            steps, seeds, splits, recipes[0].milestones, reference=self._evaluator.reference, is_final=True,
            milestones_by_task=tuple(recipe.milestones for recipe in recipes) if len(recipes) > 1 else (),
        )  # fmt: skip

    def _train_or_read(
        self, stage: TrialStage, entrants: Mapping[str, tuple[TrialLoss, Sequence[float]]], rung: Rung
    ) -> dict[str, RungScores]:
        """The scores of each loss at its learning rates: read if they are recorded, else trained and recorded."""
        done = {_key(trial) for trial in self._trials() if trial.stage == stage}
        for part in self._parts(rung):
            planned = [
                (loss, rate, seed, rung.steps)
                for loss, (_, rates) in entrants.items()
                for rate in rates
                for seed in part.seeds
            ]  # fmt: skip
            recorded_keys = [key for key in planned if key in done]
            if recorded_keys and len(recorded_keys) < len(planned):
                raise self._mismatch()
            if recorded_keys:
                continue
            stop_if_requested(self._folder)
            if self._next_phase is not None:
                self._announce(*self._next_phase)
                self._next_phase = None
            begin = time.perf_counter()
            criteria, tried = zip(*entrants.values(), strict=True)
            run = self._executor.run("try_rates", criteria, [part] * len(criteria), tried, report=self._report)
            results: dict[str, RungScores | Failure] = dict(zip(entrants, run, strict=True))
            # Also in the final: if every training fails, as for lack of memory, no loss is worse than another.
            self._require_baseline(results)
            tasks = [None] if self._rule is None else range(len(self._tasks))
            each = (time.perf_counter() - begin) / len(planned) / len(tasks)
            self._write([_trial(stage, key, part, results[key[0]], each, task) for key in planned for task in tasks])
        recorded = {_key(trial): trial for trial in self._recorded(stage)}
        found = {}
        for loss, (_, rates) in entrants.items():
            trials = {rate: [recorded[loss, rate, seed, rung.steps] for seed in rung.seeds] for rate in rates}
            scores = RungScores({rate: tuple(trial.score for trial in row) for rate, row in trials.items()})
            lost = next((trial for trial in trials[scores.rate] if not math.isfinite(trial.score)), None)
            found[loss] = scores if lost is None else dataclasses.replace(scores, sentence=lost.sentence)
        return found

    def _parts(self, rung: Rung) -> list[Rung]:
        """The rung in parts that are trained and recorded together: all seeds if models are stacked, else one each."""
        if all(plan["mode"] == "stacked" for plan in self._executor.record()["plans"]):
            return [rung]
        return [
            dataclasses.replace(rung, seeds=(seed,), splits=rung.splits[index : index + 1])
            for index, seed in enumerate(rung.seeds)
        ]

    def _mismatch(self) -> InputError:
        place = "" if self._store is None else f"{self._store.path}: "
        return InputError(f"{place}its final does not belong to the recorded candidates, so it cannot be resumed")

    def _announce(self, phase: str, steps: int) -> None:
        if self._listener is not None:
            self._listener.on_phase(phase, steps)

    def _trials(self) -> Sequence[RecordedTrial]:
        """All trials as they are recorded; where fitness is computed from several tasks, one for each task."""
        return self._unrecorded if self._store is None else self._store.trials()

    def _recorded(self, stage: TrialStage) -> list[RecordedTrial]:
        """The trials of a stage, with fitness as their score."""
        return [trial for trial in combined(self._trials(), self._rule) if trial.stage == stage]

    def by_task(self, final: Final | None) -> tuple[TaskValues, ...]:
        """The results of the losses that a final compares, on each of several tasks."""
        tasks = [(task.name, ShownMetric(task.metric.name, task.metric.higher_is_better)) for task in self._tasks]
        return values_by_task(self._trials(), final, tasks)

    def _record(
        self, stage: TrialStage, losses: Sequence[str], seed: int, results: Sequence[Fitness | Failure], seconds: float
    ) -> None:
        each = seconds / len(losses)
        trials = []
        for loss, result in zip(losses, results, strict=True):
            if self._rule is None:
                trials.append(RecordedTrial.of(stage, loss, seed, result, seconds=each))
                continue
            for task in range(len(self._tasks)):
                own = result if isinstance(result, Failure) else result.by_task[task]
                trials.append(RecordedTrial.of(stage, loss, seed, own, task=task, seconds=each / len(self._tasks)))
        self._write(trials)

    def _write(self, trials: Sequence[RecordedTrial]) -> None:
        if self._store is None:
            self._unrecorded += trials
        else:
            self._store.write_trials(trials)


def kept_of(count: int) -> int:
    """How many of `count` losses stay in the final once their learning rates are chosen."""
    return min(count, max(_FEWEST_KEPT, math.ceil(_KEPT_SHARE * count)))


def final_trials(candidates: int, rivals: int, *, rates: int, seeds: int) -> int:
    """The number of trials of a final in stages, for estimates."""
    rivals = min(rivals, _FINAL_RIVALS + 1)
    staying = kept_of(candidates) + kept_of(rivals)
    compared = 3 + min(candidates - 1, RUNNERS_UP)
    return (candidates + rivals) * rates * _RATE_SEEDS + staying * min(2, rates) * seeds + compared * lead_seeds(seeds)


def _key(trial: RecordedTrial) -> tuple[str, float, int, int]:
    return trial.loss, trial.rate, trial.seed, trial.steps


def _trial(
    stage: TrialStage, key: tuple[str, float, int, int], rung: Rung, result: RungScores | Failure, seconds: float,
    task: int | None,
) -> RecordedTrial:  # fmt: skip
    loss, rate, seed, steps = key
    if isinstance(result, RungScores) and task is not None:
        result = result.by_task[task]
    left_out: tuple[float, ...] = ()
    if isinstance(result, Failure):
        score, sentence = math.inf, f"evaluate failed: {result.sentence}"
    else:
        index = rung.seeds.index(seed)
        score, left_out = result.costs[rate][index], result.left_out_at(rate)[index]
        sentence = "trained and evaluated" if math.isfinite(score) else result.sentence or "the training diverged"
    return RecordedTrial(
        stage=stage, loss=loss, seed=seed, score=score, sentence=sentence, rate=rate, steps=steps, task=task,
        left_out=left_out, seconds=seconds,
    )  # fmt: skip
