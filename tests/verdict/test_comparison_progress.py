"""Every step of a comparison is counted: those of searches, of all variants, and those that need not be done again."""

import io

from rich.console import Console

from evomal.runs.display import ProgressDisplay
from evomal.tasks.metric_display import ShownMetric
from evomal.verdict.comparing import compare
from tests.engine.populations import regression
from tests.protocols import ONE_TRAINING

SHORT = {"device": "cpu", "final_steps": 30}
SMALL = {**ONE_TRAINING, "population": 4, "generations": 2, "meta_steps": 2, "training_steps": 10, "filter_steps": 20}


class Counter:
    """Counts the steps that are expected and done."""

    def __init__(self):
        self.expected, self.done, self.searched = 0, 0, 0

    def on_start(self, *, generations, steps, final_steps, recorded, metric):
        self.searched += 1

    def on_steps(self, stage, steps):
        assert stage in ("train", "optimise", "evaluate")
        if stage == "train":
            assert steps >= 0
            self.done += steps

    def on_generation(self, generation):
        pass

    def on_phase(self, name, steps):
        pass

    def on_rivals(self, scores):
        pass

    def on_final(self, final):
        pass

    def say(self, sentence):
        pass

    def announce(self, sentence):
        pass

    def expect(self, steps):
        assert steps > 0
        self.expected += steps


def counted(**options):
    listener = Counter()
    found = compare(regression(), listener=listener, **{**SHORT, **options})
    return listener, found


def test_all_trainings_of_all_variants_are_counted_in_steps(tmp_path):
    listener, found = counted(losses=["mae", "huber"], seeds=2, tune_lr=3, folder=tmp_path)
    trainings = 2 * 3 + (2 * 3 * len(found.rates) + 2 * 3) + 2 * 2
    assert listener.expected == listener.done
    settling = listener.done // 30 - trainings  # three losses at the best rate, or at several, with three seeds more
    assert settling >= 3 * 3
    assert settling % 3 == 0
    again, _ = counted(losses=["mae", "huber"], seeds=2, tune_lr=3, folder=tmp_path)  # all of it is recorded
    assert (again.expected, again.done) == (listener.expected, listener.done)


def test_trainings_in_a_stack_and_searches_are_counted_too():
    listener, _ = counted(losses=["mae", "huber"], seeds=2, rescale=False, population_mode="stacked")
    assert listener.expected == listener.done == 30 * 2 * 3
    listener, _ = counted(methods=["gp-lfl"], search_seeds=2, seeds=1, rescale=False, **SMALL)
    assert listener.searched == 2
    assert listener.expected == listener.done


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
    with ProgressDisplay(console) as shown:
        shown.on_start(generations=3, steps=100, final_steps=0, recorded=[], metric=ShownMetric())
        shown.on_steps("evaluate", 40)
        shown.announce("training with 2 losses")
        shown.expect(500)
        (row,) = shown._bar._progress.tasks
        assert (row.completed, row.total, row.description) == (0, 500, "training with 2 losses")
        shown.expect(300)
        shown.on_steps("train", 800)
        assert row.completed == row.total == 800
