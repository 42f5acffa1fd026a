"""Every step of a comparison is counted: those of searches, of all variants, and those that need not be done again."""

import io

from rich.console import Console

from evomal.runs import Generation
from evomal.verdict.comparison import compare
from evomal.verdict.comparison_progress import ComparisonProgress
from tests.engine.populations import regression

SHORT = {"device": "cpu", "final_steps": 30}
SMALL = {"population": 4, "generations": 2, "meta_steps": 2, "training_steps": 10, "filter_steps": 20}


class Counter:
    """Keeps what it is told."""

    def __init__(self):
        self.expected, self.done, self.searched = 0, 0, 0

    def begun(self, *, generations, steps, recorded):
        self.searched += 1

    def report(self, stage, steps):
        assert stage in ("train", "optimise", "evaluate")
        if stage == "train":
            assert steps >= 0
            self.done += steps

    def told(self, generation):
        pass

    def say(self, sentence):
        pass

    def expect(self, steps):
        assert self.done == 0 or steps == 2 * 3 * 30  # further rates, for three losses with two seeds each
        self.expected += steps


def counted(**options):
    watcher = Counter()
    found = compare(regression(), watcher=watcher, **{**SHORT, **options})
    return watcher, found


def test_all_trainings_of_all_variants_are_counted_in_steps(tmp_path):
    watcher, found = counted(losses=["mae", "huber"], seeds=2, tune_lr=3, folder=tmp_path)
    trainings = 2 * 3 + (2 * 3 * len(found.rates) + 2 * 3) + 2 * 2
    assert watcher.expected == watcher.done == 30 * trainings
    again, _ = counted(losses=["mae", "huber"], seeds=2, tune_lr=3, folder=tmp_path)  # all of it is recorded
    assert (again.expected, again.done) == (watcher.expected, watcher.done)


def test_trainings_in_a_stack_and_searches_are_counted_too():
    watcher, _ = counted(losses=["mae", "huber"], seeds=2, rescale=False, population_mode="stacked")
    assert watcher.expected == watcher.done == 30 * 2 * 3
    watcher, _ = counted(methods=["gp-lfl"], search_seeds=2, seeds=1, rescale=False, **SMALL)
    assert watcher.searched == 2
    assert watcher.expected == watcher.done


def test_progress_is_a_line_per_stage_without_a_terminal(capfd):
    compare(
        regression(), methods=["taylorglo"], losses=["mae"], seeds=1, tune_lr=2, progress=True, **SHORT, **SMALL
    )  # fmt: skip
    out, err = capfd.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "searching with taylorglo, seed 0 (search 1 of 1)",
        "training with 3 losses, 1 seed each",
        "trying 2 learning rates or more for each of 3 losses",
        "training with 3 losses, 1 seed each, tuned",
        "training with 2 losses, 1 seed each, rescaled",
    ]


def test_nothing_is_shown_unless_it_is_asked_for(capfd):
    compare(regression(), losses=["mae"], seeds=1, **SHORT)
    assert capfd.readouterr() == ("", "")


def test_a_search_that_is_shorter_than_it_might_be_fills_its_part_of_the_bar(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    with ComparisonProgress(console) as shown:
        shown.begun(generations=3, steps=100, recorded=[])
        (row,) = shown._bar._progress.tasks
        shown.report("evaluate", 40)
        assert (row.completed, row.total) == (40, 300)
        shown.told(Generation(0, 4, {}, None, {}))
        assert row.completed == 100
        shown.report("evaluate", 100)
        shown.told(Generation(1, 4, {}, None, {}))
        assert row.completed == 200
        shown.expect(500)  # the third generation was not needed
        assert (row.completed, row.total) == (300, 800)
        shown.report("train", 500)
        assert row.completed == row.total
