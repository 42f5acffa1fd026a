"""Callbacks: what they are told, in which order, and how they end a search that can be resumed."""

import numpy as np
import pytest

import evomal
from evomal.errors import InputError
from evomal.runs import RunStore
from tests.runs.test_run_loop import run


def dump(folder):
    with RunStore.read(folder) as store:
        return store.dump()


class Notes(evomal.SearchCallback):
    """Writes down what it is told."""

    def __init__(self, end_after=None):
        self.told, self.end_after = [], end_after

    def on_start(self, run):
        self.told.append(("start", run.method, len(run.history)))

    def on_generation(self, generation):
        self.told.append(("generation", generation.number))
        return generation.number == self.end_after

    def on_end(self, result):
        self.told.append(("end", None if result is None else result.ending))


def test_a_search_is_followed_from_its_beginning_to_its_end():
    notes, seen = Notes(), []
    result = run(callback=[notes, seen.append])
    generations = [("generation", number) for number in range(3)]
    assert notes.told == [("start", "evomal", 0), *generations, ("end", "all 3 generations are done")]
    assert seen == list(result.history)


@pytest.mark.parametrize(
    "ending", [Notes(end_after=1), lambda generation: np.bool_(generation.number)], ids=["object", "function"]
)
def test_a_callback_ends_a_search_which_can_be_resumed(tmp_path, ending):
    others = Notes()
    result = run(tmp_path / "parts", callback=[ending, others])
    assert result.ending == "a callback ended it; the final was run nevertheless"
    assert (len(result.history), result.best is not None, result.run.state) == (2, True, "interrupted")
    assert others.told[-2:] == [("generation", 1), ("end", result.ending)]
    resumed = Notes()
    again = run(tmp_path / "parts", callback=resumed)
    assert resumed.told[:2] == [("start", "evomal", 2), ("generation", 2)]
    assert again.ending == "all 3 generations are done"
    run(tmp_path / "whole")
    kinds = [line for line in dump(tmp_path / "whole").splitlines() if '"kind":"candidate"' in line]
    assert [line for line in dump(tmp_path / "parts").splitlines() if '"kind":"candidate"' in line] == kinds != []


def test_what_is_true_by_accident_does_not_end_a_search():
    assert len(run(callback=lambda generation: [1]).history) == 3


def test_the_last_generation_is_the_end_anyway():
    assert run(callback=Notes(end_after=2)).ending == "all 3 generations are done"


def test_a_search_that_fails_is_told_to_those_that_were_told_of_its_beginning():
    class Unwilling(evomal.SearchCallback):
        def on_start(self, run):
            raise InputError("not today")

        def on_end(self, result):
            pytest.fail("it was not begun")

    first, last = Notes(), Notes()
    with pytest.raises(InputError, match="not today"):
        run(callback=[first, Unwilling(), last])
    assert first.told == [("start", "evomal", 0), ("end", None)]
    assert last.told == []

    failing = Notes()
    with pytest.raises(ZeroDivisionError):
        run(callback=[failing, lambda generation: 1 / 0])
    assert failing.told[-1] == ("end", None)


class Broken(evomal.SearchCallback):
    """Fails at the end."""

    def __init__(self, error):
        self.error = error

    def on_end(self, result):
        raise self.error


@pytest.mark.parametrize("first", [OSError("disk full"), KeyboardInterrupt()])
def test_all_are_called_at_the_end_and_the_first_error_is_raised(first):
    last = Notes()
    with pytest.raises(type(first)) as raised:
        run(callback=[Broken(first), Broken(ValueError("second")), last])
    assert raised.value is first
    assert last.told[-1] == ("end", "all 3 generations are done")


def test_the_error_of_a_search_is_not_replaced_by_that_of_a_callback():
    last = Notes()
    with pytest.raises(ZeroDivisionError) as raised:
        run(callback=[Broken(OSError("disk full")), last, lambda generation: 1 / 0])
    assert last.told[-1] == ("end", None)
    (note,) = raised.value.__notes__
    assert note.startswith("a callback failed in on_end, too: OSError: disk full")


@pytest.mark.parametrize("given", [3, "print", Notes, [print, 3]])
def test_what_is_no_callback_is_refused(given):
    with pytest.raises(InputError, match="callback must be a function, a SearchCallback or a list of them but got"):
        run(callback=given)
