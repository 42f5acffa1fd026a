"""`evomal resume` with another executor: what is kept of the recorded workplace, and what is refused."""

from types import SimpleNamespace
from unittest import mock

import pytest
import torch

from evomal.runs import RunStore
from evomal.threads import thread_count
from tests.cli.test_app import run  # noqa: F401  (a fixture)
from tests.cli.test_search import SHORT


@pytest.fixture
def begun(run, tmp_path):  # noqa: F811
    """A local search that has ended after its first generation."""
    assert run("search", "diabetes", "--out", tmp_path / "mine", *SHORT, "--set", "max_evaluations=1")[0] == 0
    return tmp_path / "mine"


def test_a_run_is_moved_to_a_cluster_only_with_its_own_threads(run, begun):  # noqa: F811
    threads = torch.get_num_threads()
    place = ["--executor", "ray", "--address", "127.0.0.1:1"]
    code, out, err = run("resume", begun, *place, "--set", f"threads={threads + 1}")
    assert (code, out) == (2, "")
    assert err == (
        f"evomal: {begun}: threads was {threads} but is {threads + 1}, the number per worker: resume with "
        f"--set threads={threads}\n"
    )
    pytest.importorskip("ray")
    code, _, err = run("resume", begun, *place, "--set", f"threads={threads}")
    assert (code, err) == (2, "evomal: no Ray cluster answers at 127.0.0.1:1: [Errno 111] Connection refused\n")


def test_threads_may_be_given_if_they_equal_those_recorded(run, begun):  # noqa: F811
    assert run("resume", begun, "--set", f"threads={torch.get_num_threads()}", "--set", "max_evaluations=2")[0] == 0


@pytest.mark.parametrize(
    ("typed", "workers"),
    [
        (("--executor", "local"), None),
        (("--set", "executor=local"), None),
        (("--set", "executor=ray", "--set", "executor = local"), None),
        (("--set", "executor=ray"), 3),
        ((), 3),
    ],
)
def test_workers_are_kept_only_where_the_executor_is(run, begun, typed, workers):  # noqa: F811
    with RunStore.read(begun) as store:
        recorded = store.settings
    of_cluster = {
        **recorded,
        "settings": {**recorded["settings"], "threads": 1},
        "threads": 1,
        "workplace": {**recorded["workplace"], "executor": "ray", "workers": 3},
    }
    with (
        mock.patch("evomal.runs.reading.load_run", return_value=SimpleNamespace(settings=of_cluster)),
        mock.patch("evomal.cli.searching._run") as gone_on,
    ):
        assert run("resume", begun, *typed)[0] == 0
    assert gone_on.call_args.args[2].workers == workers


@pytest.mark.parametrize(
    ("threads", "typed", "sentence"),
    [
        (2, ("--jobs", "2"), "is 1, the number per worker: resume with --set threads=2 or with fewer jobs"),
        (2, ("--jobs", "2", "--set", "threads=3"), "is 3, the number per worker: resume with --set threads=2"),
        (2, ("--jobs", "2", "--set", "threads=2"), ""),
        (2, ("--jobs", "2", "--force"), ""),
        (1, ("--jobs", "2"), ""),
        (2, (), ""),
    ],
)  # fmt: skip
def test_jobs_are_refused_that_have_fewer_threads_than_the_record(run, begun, threads, typed, sentence):  # noqa: F811
    with RunStore.read(begun) as store:
        recorded = SimpleNamespace(settings={**store.settings, "threads": threads})
    with (
        thread_count(2),
        mock.patch("evomal.runs.reading.load_run", return_value=recorded),
        mock.patch("evomal.cli.searching._run") as gone_on,
    ):
        code, _, err = run("resume", begun, *typed)
    assert (code, err) == ((2, f"evomal: {begun}: threads was 2 but {sentence}\n") if sentence else (0, ""))
    if not sentence:
        assert gone_on.call_args.kwargs["jobs"] == (2 if typed else 1)
