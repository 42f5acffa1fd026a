"""The candidates of a run: all of them in pages, and one by itself with its ancestry, shape, scores and exports."""

import dataclasses
from dataclasses import dataclass

from evomal.errors import InputError
from evomal.figures.ancestry import ancestry_of
from evomal.figures.front import formula_of
from evomal.losses.exporting import export
from evomal.losses.files import loss_content
from evomal.losses.loss import Provenance
from evomal.methods.candidates import Candidate
from evomal.report.best_losses import candidate_loss
from evomal.report.pages import mathml, render
from evomal.report.run_charts import ancestry_chart, shapes_of
from evomal.runs.leads import Scores, rate_text
from evomal.runs.recorded_run import Run
from evomal.runs.views import RunView
from evomal.server.list_page import Pages
from evomal.server.summaries import RunSummary
from evomal.text import shorten

PER_PAGE = 50
EXPORTS = {
    "python": (".py", "text/x-python"),
    "latex": (".tex", "application/x-tex"),
    "json": (".json", "application/json"),
}
"""The ending and the media type of each format."""
_LONGEST_TYPESET = 240  # characters
_MOST_STEPS, _MOST_PARENTS = 40, 12
_STAGES = {"rates": "learning rates tried", "final": "final", "lead": "lead over the best rival"}


@dataclass(frozen=True)
class CandidateRow:
    """A candidate in one line."""

    address: str
    generation: int
    index: int
    value: str
    state: str
    size: str
    origin: str
    formula: str


def candidates_page(view: RunView, summary: RunSummary, *, order: str, number: int) -> str:
    """One page of all candidates: `best` first, or `newest` first."""
    rowids = view.by_rank if order == "best" else view.table["rowid"][::-1]
    pages = Pages.of(number, len(rowids), PER_PAGE)
    run = view.head
    candidates = view.read(rowids[pages.begin : pages.begin + PER_PAGE]) if len(rowids) else []
    rows = [_row(run, candidate, summary.key) for candidate in candidates]
    return render("live_candidates.html", summary=summary, order=order, pages=pages, rows=rows, metric=summary.metric)


def _row(run: Run, candidate: Candidate, key: str) -> CandidateRow:
    return CandidateRow(
        address=address_of(candidate, key),
        generation=candidate.generation + 1,
        index=candidate.index,
        value=run.shown_metric.text(candidate.fitness) if candidate.has_fitness else "",
        state=str(candidate.state),
        size=str(candidate.size or ""),
        origin=shorten(candidate.origin, 40),
        formula=formula_of(candidate),
    )


def address_of(candidate: Candidate, key: str) -> str:
    """The address of a candidate's page."""
    return f"/runs/{key}/candidates/{candidate.generation}/{candidate.index}"


def candidate_page(view: RunView, summary: RunSummary, place: tuple[int, int]) -> str:
    """The page of one candidate."""
    candidate = _candidate(view, place)
    ancestors = view.ancestors(candidate)
    rest = {(one.generation, one.index): one for one in (*ancestors, candidate)}
    sample = view.sample(())
    run = dataclasses.replace(sample, candidates=tuple(rest[at] for at in sorted(rest)))
    loss = candidate_loss(run, candidate)
    formula = formula_of(candidate) if loss is None else loss.formula()
    found = ancestry_of(run, candidate)
    parents = [one for one in ancestors if one.generation == candidate.generation - 1][:_MOST_PARENTS]
    lr = None if run.final is None else run.final.lr
    return render(
        "live_candidate.html",
        summary=summary,
        candidate=candidate,
        address=address_of(candidate, summary.key),
        formula=formula,
        mathml=None if loss is None else mathml(loss, formula, longest=_LONGEST_TYPESET),
        symbols="" if loss is None else loss.symbols(),
        value=run.shown_metric.text(candidate.fitness) if candidate.has_fitness else "none",
        shapes=[] if loss is None else shapes_of(loss, run.classes),
        parents=[(address_of(one, summary.key), one, formula_of(one)) for one in parents],
        rungs=[
            (number, rate_text(rate, lr), run.shown_metric.text(cost))
            for number, (rate, cost) in enumerate(candidate.rungs, 1)
        ],
        scores=scores_of(view, run, candidate),
        ancestry=ancestry_chart(found, f"/runs/{summary.key}"),
        changes=[
            (address_of(step.ancestor.candidate, summary.key), step.ancestor.candidate.generation + 1,
             step.ancestor.candidate.origin, run.shown_metric.text(step.ancestor.candidate.fitness),
             step.replaced, step.replacement)
            for step in found.changes()[-_MOST_STEPS:]
        ],
        ancestry_sentence=found.sentence,
        exports=list(EXPORTS) if loss is not None else [],
        weights=[f"{weight:.6g}" for weight in candidate.weights],
    )  # fmt: skip


def _candidate(view: RunView, place: tuple[int, int]) -> Candidate:
    rowid = view.rowid_of(*place)
    found = [] if rowid is None else view.read([rowid])
    if not found:
        raise InputError("this candidate is no longer recorded")
    return found[0]


def scores_of(view: RunView, run: Run, candidate: Candidate) -> list[tuple[str, str, str, str]]:
    """For each stage of the final and learning rate: the stage, the rate, the mean score, and that of each seed."""
    found: dict[tuple[str, float], list[tuple[int, float]]] = {}
    for trial in view.trials:
        if trial.loss == candidate.place and trial.stage in _STAGES and trial.task is None:
            found.setdefault((trial.stage, trial.rate), []).append((trial.seed, trial.score))
    lr = None if run.final is None else run.final.lr
    rows = []
    for (stage, rate), scores in found.items():
        each = ", ".join(f"{seed}: {run.shown_metric.text(score)}" for seed, score in scores)
        mean = Scores(tuple(score for _, score in scores))
        rows.append((_STAGES[stage], rate_text(rate, lr), run.shown_metric.text(mean.mean, mean.deviation), each))
    return rows


def exported(view: RunView, place: tuple[int, int], form: str) -> bytes:
    """The loss of a candidate as a file in one of the `EXPORTS`."""
    candidate, run = _candidate(view, place), view.sample(())
    loss = candidate_loss(run, candidate)
    if loss is None:
        raise InputError("this candidate is not a loss that can be exported")
    if form == "json":
        return loss_content(loss, provenance=_provenance(run, candidate))
    return f"{str(export(loss, form)).rstrip()}\n".encode()


def _provenance(run: Run, candidate: Candidate) -> Provenance:
    found: Provenance = {
        "task": shorten(run.task, 200),
        "method": shorten(run.method, 200),
        "metric": shorten(run.metric, 200),
        "chosen": f"candidate {candidate.index} of generation {candidate.generation + 1}",
    }
    if run.seed is not None:
        found["seed"] = run.seed
    if candidate.has_fitness:
        found |= {"fitness": candidate.fitness, "value": run.value(candidate.fitness)}
    if run.final is not None and run.final.lr is not None:
        found["learning_rate"] = run.final.lr * run.final.rates.get(candidate.place, candidate.rate)
    return found
