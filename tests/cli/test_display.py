"""Ctrl-C: said and remembered the first time, raised the second, and given back."""

import signal
import threading

import pytest

from evomal.cli import display
from evomal.cli.display import SENTENCE, advise_jobs, interruptible

pytestmark = pytest.mark.usefixtures("ctrl_c_raises")


def test_the_first_time_is_said_and_stops_at_the_next_check():
    said = []
    with interruptible(said.append) as interruption:
        interruption.check()
        assert said == []
        signal.raise_signal(signal.SIGINT)
        assert said == ["stopping after this step; press Ctrl-C again to stop at once"]
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                interruption.check()
    assert len(said) == 1


def test_the_second_time_stops_at_once():
    said = []
    with interruptible(said.append):
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert said == [SENTENCE]


def test_work_that_ends_before_it_could_stop_ends_well():
    with interruptible(lambda sentence: None):
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_the_handler_from_before_comes_back_also_after_errors(error):
    def handler(number, frame):
        pass

    signal.signal(signal.SIGINT, handler)

    def failing():
        with interruptible(lambda sentence: None):
            assert signal.getsignal(signal.SIGINT) is not handler
            raise error

    with pytest.raises(error):
        failing()
    assert signal.getsignal(signal.SIGINT) is handler


def test_blocks_within_blocks_give_back_to_each_other():
    outer, inner = [], []
    with interruptible(outer.append) as one:
        with interruptible(inner.append):
            signal.raise_signal(signal.SIGINT)
        one.check()
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            one.check()
    assert (outer, inner) == ([SENTENCE], [SENTENCE])


def test_a_process_that_ignores_ctrl_c_keeps_ignoring_it():
    said = []
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with interruptible(said.append) as interruption:
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        signal.raise_signal(signal.SIGINT)
        interruption.check()
    assert said == []
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_a_handler_that_python_cannot_give_back_is_left(monkeypatch):
    said = []
    with monkeypatch.context() as patched:
        patched.setattr(signal, "getsignal", lambda number: None)
        with interruptible(said.append), pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert said == []


def test_outside_the_main_thread_nothing_is_changed():
    seen = []

    def work():
        with interruptible(seen.append) as interruption:
            seen.append(signal.getsignal(signal.SIGINT))
            interruption.check()
            seen.append("checked")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler, "checked"]


@pytest.mark.parametrize("error", [RuntimeError("reentrant call inside a writer"), BrokenPipeError()])
def test_a_sentence_that_cannot_be_said_still_stops_the_work(error):
    def unable(sentence):
        raise error

    with interruptible(unable) as interruption:
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            interruption.check()


@pytest.mark.parametrize(
    ("processors", "plan", "said"),
    [
        (8, {}, "evomal: one of 8 processors is used; --jobs 8 uses 8, with the same result\n"),
        (64, {}, "evomal: one of 64 processors is used; --jobs 32 uses 32, with the same result\n"),
        (1, {}, ""),
        (8, {"threads": 8}, ""),
        (8, {"device": "cuda"}, ""),
    ],
)
def test_jobs_are_advised_where_one_of_several_processors_is_used(monkeypatch, capsys, processors, plan, said):
    monkeypatch.setattr(display, "processors", lambda: processors)
    advise_jobs({"device": "cpu", "threads": 1, "population": 32, **plan})
    assert capsys.readouterr() == ("", said)
