"""Every step of a comparison is counted: those of searches, of all variants, and those that need not be done again."""

import io

from rich.console import Console

from evomal.runs.watching import DisplayWatcher
from evomal.verdict.comparing import compare
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

    def phase(self, name, steps):
        pass

    def rivals(self, scores):
        pass

    def final(self, final):
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
    lines = err.splitlines()
    stages = [line for line in lines if line.startswith(("searching", "training", "trying"))]
    assert any(line.startswith("generation 2 of 2") for line in lines)
    assert stages == [
        "searching with taylorglo, seed 0 (search 1 of 1)",
        "training with 3 losses, 1 seed each",
        "trying 2 learning rates or more for each of 3 losses",
        "training with 3 losses, 1 seed each, tuned",
        "training with 2 losses, 1 seed each, rescaled",
    ]


def test_nothing_is_shown_unless_it_is_asked_for(capfd):
    compare(regression(), losses=["mae"], seeds=1, **SHORT)
    assert capfd.readouterr() == ("", "")


def test_trainings_after_a_search_are_one_bar(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    with DisplayWatcher(console) as shown:
        shown.begun(generations=3, steps=100, recorded=[])
        shown.report("evaluate", 40)
        shown.announce("training with 2 losses")
        shown.expect(500)
        (row,) = shown._bar._progress.tasks
        assert (row.completed, row.total, row.description) == (0, 500, "training with 2 losses")
        shown.expect(300)
        shown.report("train", 800)
        assert row.completed == row.total == 800
