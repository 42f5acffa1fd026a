"""The final of a search: its best candidates and the rivals, trained again.

The lowest of hundreds of numbers is partly luck, and says little about how the loss trains with another seed. So the
best candidates and the rivals are trained again with fresh seeds, and the candidate with the lowest mean is the result.
Where a search tries several learning rates, its final has three stages, each with fresh seeds: learning rates are
tried, then the winner is chosen, each loss at its best learning rate or the next lower one, then its lead over the best
rival is measured. If it has none, as when one of its many trainings fails, the lead of the next best is measured. All
trainings are of full length.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from evomal.methods.candidates import Candidate, trained
from evomal.runs.leads import CONFIDENCE, Scores, lead_on_other_rows, lead_text, paired_lead, rate_text
from evomal.runs.rows import RecordedTrial, TrialStage
from evomal.tasks.metric_display import metric_number
from evomal.text import plural

FINAL_SEEDS = 3000
"""The first seed of finals; no search, tuning or comparison uses these seeds."""
_LATER_CONFIDENCE = 0.99
"""For the lead of a candidate that was not the best of the final: with every further candidate, chance has another
chance."""
RUNNERS_UP = 2
"""Candidates whose lead is measured if the best of the final has none."""
_ORDINALS = ("best", "second best", "third best")


@dataclass(frozen=True)
class Final:
    """Candidates and rivals under one protocol: the same fresh seeds, the same number of steps.

    Losses that were dropped after learning rates were tried are not included.
    """

    candidates: tuple[tuple[Candidate, Scores], ...]
    """In the order of their fitness in the search."""
    rivals: Mapping[str, Scores]
    """By name, the baseline first."""
    rates: Mapping[str, float] = field(default_factory=dict)
    """The learning rates, as multiples of the task's own, by a rival's name or a candidate's place; empty where each
    was trained at the task's own."""
    lr: float | None = None
    """The task's own learning rate, if it is known."""
    last: tuple[Scores, Scores, Scores] | None = None
    """The winner, the best rival and the baseline on further seeds, by which none of them entered."""
    steps: int = 0
    """The number of steps of each training, for which the learning rates hold; 0 if it is not recorded."""
    place: int = 0
    """The winner's place among the candidates, best first: more than 0 if those before it had no lead."""
    lower_rates: Mapping[str, float] = field(default_factory=dict, repr=False)
    """Beside a rival's learning rate, the next lower one if that did not diverge either."""

    def __repr__(self) -> str:
        return (
            f"Final({len(self.candidates)} candidates, {len(self.rivals)} rivals, {self.seeds} seeds, {self.verdict()})"
        )

    @property
    def seeds(self) -> int:
        """Number of seeds."""
        return len(self.winner[1].values)

    @property
    def seeds_in_words(self) -> str:
        """Number of seeds, for a sentence."""
        return plural(self.seeds, "fresh seed")

    @property
    def winner(self) -> tuple[Candidate, Scores]:
        """The candidate with the lowest mean, of equal ones the one that was better in the search; or the next one that
        leads, if it does not."""
        return self._ranked[self.place]

    @property
    def rank(self) -> str:
        """The winner's place among the candidates, in words: best, unless those before it had no lead."""
        return _ORDINALS[self.place]

    @property
    def runners_up(self) -> list[str]:
        """The places of the candidates whose lead is measured if the best has none, best first.

        Only those with a lower mean than the best rival.
        """
        bar = self.best_rival[1].standing
        return [one.place for one, scores in self._ranked[1 : 1 + RUNNERS_UP] if scores.standing < bar]

    @property
    def _ranked(self) -> list[tuple[Candidate, Scores]]:
        return sorted(self.candidates, key=lambda entry: entry[1].standing)  # stable: of equal ones the first given

    @property
    def best_rival(self) -> tuple[str, Scores]:
        """The rival with the lowest mean; of equal ones the first."""
        return min(self.rivals.items(), key=lambda entry: entry[1].standing)

    @property
    def lead(self) -> tuple[float, float]:
        """How much lower the winner's cost is than the best rival's, over paired seeds, and the interval's half-width.

        See `paired_lead`; the interval is at 95 %, and holds for the validation rows of the final.
        """
        return paired_lead(*self._paired)

    @property
    def lead_on_other_rows(self) -> tuple[float, float] | None:
        """The lead with an interval that allows for other validation rows as well; None if that is not known."""
        return lead_on_other_rows(*self._paired)

    @property
    def may_depend_on_rows(self) -> bool:
        """Whether other validation rows may not show the lead: unless an interval says otherwise, or it is infinite."""
        if math.isinf(self.lead[0]):
            return False
        found = lead_on_other_rows(*self._paired, confidence=self._confidence)
        return found is None or found[0] - found[1] <= 0

    @property
    def _confidence(self) -> float:
        return _LATER_CONFIDENCE if self.place else CONFIDENCE

    @property
    def _paired(self) -> tuple[Scores, Scores]:
        """The winner and the best rival with the seeds on which the lead is measured."""
        return (self.winner[1], self.best_rival[1]) if self.last is None else self.last[:2]

    @property
    def leads(self) -> bool:
        """Whether the whole interval of the lead is above zero: at 99 % for one that was not the best of the final.

        The interval is over seeds. What other validation rows would show is said beside it (`lead_on_other_rows`) and
        does not decide: of the leads that it would refuse, most are there on test rows (docs/results/leads.md).

        If that is because the best rival diverges, the winner must not be behind the baseline, which may not.
        """
        own, other = self._paired
        lead, half = paired_lead(own, other, confidence=self._confidence)
        if not lead - half > 0 or not math.isfinite(self.winner[1].mean):
            return False
        baseline = self.rivals[self.baseline] if self.last is None else self.last[2]
        return not other.diverged or own.standing <= baseline.standing

    @property
    def compared(self) -> tuple[str, str, str]:
        """The place of the winner, and the names of the best rival and of the baseline, which may be the same."""
        return self.winner[0].place, self.best_rival[0], self.baseline

    @property
    def baseline(self) -> str:
        """The task's own loss."""
        return next(iter(self.rivals))

    @property
    def advised(self) -> str:
        """The known loss to use if the winner does not lead: the best rival, or the baseline if that rival has no lead.

        Of the two, one that diverged more often is not advised. Without further seeds to measure the lead, it is the
        best rival.
        """
        if self.last is None:
            return self.best_rival[0]
        _, rival, baseline = self.last
        if rival.diverged != baseline.diverged:
            return self.best_rival[0] if rival.diverged < baseline.diverged else self.baseline
        lead, half = paired_lead(rival, baseline)
        return self.best_rival[0] if lead - half > 0 else self.baseline

    @property
    def advised_rate(self) -> float:
        """The learning rate of the advised loss, as a multiple of the task's own.

        The next lower one, if trainings that measured the lead diverged and none of those at the lower one did.
        """
        rate = self.rates.get(self.advised, 1.0)
        return self.lower_rates.get(self.advised, rate) if self._diverged_of_advised else rate

    @property
    def _diverged_of_advised(self) -> int:
        """How many of the trainings that measured the lead diverged with the advised loss."""
        if self.last is None:
            return 0
        return self.last[1 if self.advised == self.best_rival[0] else 2].diverged

    def verdict(self, metric: str = "") -> str:
        """Whether the winner leads, in words no stronger than the interval of its lead.

        Args:
            metric: The name of the metric, which decides the unit of the lead.
        """
        name = self.best_rival[0]
        if not math.isfinite(self.winner[1].mean):
            return f"no lead over {name}: training with the learned loss diverged"
        if self.leads:
            subject = f"the {self.rank} candidate " if self.place else ""
            own = self.rates.get(self.winner[0].place)
            use = "" if own is None else f": use the learned loss with {rate_text(own, self.lr, self.steps)}"
            return f"{subject}beats {name}{self._by_how_much(metric)}{use}"
        advised = self.advised
        if advised not in self.rates:
            return f"no lead over {name}"
        why = self._against_rival() if advised != name else self._further and f" on {self._further}"
        rate, higher = (rate_text(one, self.lr, self.steps) for one in (self.advised_rate, self.rates[advised]))
        lost = self._diverged_of_advised
        at = f" at {higher}" if rate != higher else ""
        warning = f" (it diverged{at} with {lost} of {self._further if at else 'them'})" if lost else ""
        return f"no lead over {name}{why}: use {advised} with {rate}{warning}"

    @property
    def _further(self) -> str:
        """The number of seeds on which the lead is measured, in words; empty if it is on those that chose the winner.

        Without it the lead would seem to contradict the scores by which the winner was chosen.
        """
        return "" if self.last is None else plural(len(self.last[0].values), "further seed")

    def _by_how_much(self, metric: str) -> str:
        """The lead with its intervals, as the end of a sentence."""
        (lead, half), rival, further = self.lead, self._paired[1], self._further
        if math.isinf(lead):
            return f", which diverged with {rival.diverged} of {further or self.seeds_in_words}"
        over = further and f" over {further}"
        if lost := rival.diverged:
            others = "the other" if lost == 1 else "the others"
            used = len(rival.values) - lost
            over = f" over {used} of {further or self.seeds_in_words}; {self.best_rival[0]} diverged with {others}"
        known = self.lead_on_other_rows
        rows = "" if known is None else f" (± {metric_number(known[1], metric, digits=2)} with other rows)"
        return f" by {lead_text(lead, half, metric)} on validation{rows}{over}"

    def _against_rival(self) -> str:
        """Why the baseline is advised, not the loss that was just called the best of the known ones."""
        assert self.last is not None
        _, rival, baseline = self.last
        if rival.diverged > baseline.diverged:
            return f", which diverged with {rival.diverged} of {self._further}"
        return f", which has none over {self.baseline}, on {self._further}"

    @property
    def advised_lr(self) -> float | None:
        """The learning rate to use with the advised loss; None if it is not known."""
        return None if self.lr is None or self.advised not in self.rates else self.lr * self.advised_rate


def lead_seeds(seeds: int) -> int:
    """The number of seeds for measuring the lead of the winner, in a final with `seeds` seeds.

    Only three losses are left by then, and many seeds are needed to distinguish a small lead from none.
    """
    return 3 * seeds


def final_seeds(count: int, search_seed: int) -> list[int]:
    """Seeds of a final, without the seed of the search."""
    return [seed for seed in range(FINAL_SEEDS, FINAL_SEEDS + count + 1) if seed != search_seed][:count]


def best_distinct(candidates: Iterable[Candidate], *, without: Iterable[str] = ()) -> list[Candidate]:
    """The distinct candidates that were trained, best first.

    Candidates with the same gradients, or with the same genome and weights, count as one. Candidates whose genome is
    the name of a rival are left out, since the rival itself takes part.
    """
    known = set(without)
    distinct: dict[Any, Candidate] = {}
    for candidate in trained(candidate for candidate in candidates if candidate.genome not in known):
        distinct.setdefault(candidate.fingerprint or (candidate.genome, candidate.weights), candidate)
    return list(distinct.values())


def final_of(
    candidates: Iterable[Candidate], trials: Sequence[RecordedTrial], *, seeds: int, lr: float | None = None
) -> Final | None:
    """The final that these trials belong to; None if there is none, or if trials of it are missing."""
    decided = final_so_far(candidates, trials, lr=lr)
    everyone = [*(scores for _, scores in decided.candidates), *decided.rivals.values()]
    if not decided.candidates or not decided.rivals or any(len(scores.values) != seeds for scores in everyone):
        return None
    if not any(trial.stage == "rates" for trial in trials):
        return Final(decided.candidates, decided.rivals)
    last = {loss: scores for loss, rates in _by_rate(trials, "lead").items() for scores in rates.values()}
    whole = {loss for loss, scores in last.items() if len(scores.values) == lead_seeds(seeds)}
    first, rival, baseline = decided.compared
    if not whole >= {first, rival, baseline}:
        return None
    measured = [
        replace(decided, last=(last[loss], last[rival], last[baseline]), place=place)
        for place, loss in enumerate([first, *decided.runners_up])
        if loss in whole
    ]
    return next((final for final in measured if final.leads), measured[0])


def final_so_far(candidates: Iterable[Candidate], trials: Iterable[RecordedTrial], *, lr: float | None = None) -> Final:
    """The final that these trials belong to, each loss at its better learning rate, without the measured lead."""
    trials = list(trials)
    tried, places = _by_rate(trials, "final"), {candidate.place: candidate for candidate in candidates}
    best = {loss: min(rates, key=lambda rate: (rates[rate].standing, rate)) for loss, rates in tried.items()}
    entries = tuple((places[loss], tried[loss][rate]) for loss, rate in best.items() if loss in places)
    rivals = {loss: tried[loss][rate] for loss, rate in best.items() if loss not in places}
    lower = {
        loss: [rate for rate, scores in tried[loss].items() if rate < best[loss] and not scores.diverged]
        for loss in rivals
    }
    steps = max((trial.steps for trial in trials if trial.stage == "final"), default=0)
    lower_rates = {loss: max(rates) for loss, rates in lower.items() if rates}
    return Final(entries, rivals, best, lr, steps=steps, lower_rates=lower_rates)


def _by_rate(trials: Iterable[RecordedTrial], stage: TrialStage) -> dict[str, dict[float, Scores]]:
    """The scores of each loss at each of its learning rates at a stage."""
    found: dict[str, dict[float, list[RecordedTrial]]] = {}
    for trial in trials:
        if trial.stage == stage:
            found.setdefault(trial.loss, {}).setdefault(trial.rate, []).append(trial)
    return {loss: {rate: Scores.of(row) for rate, row in rates.items()} for loss, rates in found.items()}


def recorded_final(
    settings: Mapping[str, Any], candidates: Iterable[Candidate], trials: Sequence[RecordedTrial]
) -> Final | None:
    """The final of a record; None if there is none, or if it is not complete."""
    seeds = settings.get("settings", {}).get("final_seeds")
    return final_of(candidates, trials, seeds=seeds, lr=recorded_lr(settings)) if isinstance(seeds, int) else None


def recorded_lr(settings: Mapping[str, Any]) -> float | None:
    """The learning rate of a record: that of its settings, or that of its tasks unless they differ in it."""
    places = [("settings", "lr")], [("task", name, "recipe", "lr") for name in settings.get("task", ())]
    for several in places:
        found = {_at(settings, keys) for keys in several}
        if len(found) == 1 and None not in found:
            return found.pop()
    return None


def _at(settings: Any, keys: Iterable[str]) -> float | None:
    """The number at this place of a record, which may hold anything."""
    for key in keys:
        settings = settings.get(key) if isinstance(settings, Mapping) else None
    return float(settings) if isinstance(settings, int | float) and not isinstance(settings, bool) else None
