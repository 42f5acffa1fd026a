"""One engine in this process: the candidate that raises is found, and the others keep their results."""

import itertools

import pytest
import torch

from evomal.engine import Engine, EngineSettings
from evomal.errors import DeviceError
from evomal.methods import Failure
from evomal.runs.executors import LocalExecutor
from evomal.threads import thread_count
from evomal.users_code import users_code
from tests.engine.populations import SMOOTH, as_cost, regression, weights_of

TREES, WEIGHTS = SMOOTH[:4] * 2, weights_of(SMOOTH[:4] * 2)


def allocation_error():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**50)
    return caught.value


def raising_at(limit):
    """The mean squared error; raises an error if it has that value."""

    def measure(outputs, targets):
        error = float(((outputs - targets) ** 2).mean())
        if abs(error - limit) < 1e-6:
            raise ValueError("an odd error")
        return error

    return measure


def executor(limit, mode="stacked"):
    settings = EngineSettings(
        population=8, chunk=2, meta_steps=3, training_steps=20, population_mode=mode, device="cpu"
    )
    engine = Engine(regression().judged_by(as_cost(raising_at(limit))), seed=0, settings=settings)
    sizes, evaluate = [], engine.evaluate

    def counted(trees, weights):
        sizes.append(len(trees))
        return evaluate(trees, weights)

    engine.evaluate = counted
    return LocalExecutor(engine), sizes


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """One thread, as in a worker."""
    with thread_count(1):
        yield


@pytest.fixture(scope="module")
def undisturbed(one_thread):
    return executor(-1)[0].run("evaluate", TREES, WEIGHTS)


def test_only_the_chunk_with_the_error_is_computed_one_by_one(undisturbed):
    whole, sizes = executor(undisturbed[3].value)
    found = whole.run("evaluate", TREES, WEIGHTS)
    assert sizes == [8, 2, 2, 1, 1, 2, 2]
    assert found[3] == Failure("an odd error")
    assert found[:2] + found[4:] == undisturbed[:2] + undisturbed[4:]
    (alone,) = executor(-1)[0].run("evaluate", TREES[2:3], WEIGHTS[2:3])
    assert found[2] == alone


@pytest.mark.parametrize("bounds", [(0, 8), (0, 4, 8), (0, 2, 4, 6, 8), (0, 2, 8)])
def test_results_do_not_depend_on_how_chunks_are_shared_when_a_candidate_raises(undisturbed, bounds):
    limit = undisturbed[3].value
    expected = executor(limit)[0].run("evaluate", TREES, WEIGHTS)
    found = []
    for start, stop in itertools.pairwise(bounds):
        found += executor(limit)[0].run("evaluate", TREES[start:stop], WEIGHTS[start:stop])
    assert found == expected


def test_looped_all_are_computed_one_by_one(undisturbed):
    clean = executor(-1, "looped")[0].run("evaluate", TREES, WEIGHTS)
    whole, sizes = executor(clean[5].value, "looped")
    found = whole.run("evaluate", TREES, WEIGHTS)
    assert sizes == [8] + [1] * 8
    assert found == [*clean[:5], Failure("an odd error"), *clean[6:]]


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory"),
        allocation_error(),
        RuntimeError("CUBLAS_STATUS_ALLOC_FAILED"),
    ],
)
def test_a_lack_of_memory_is_raised_if_asked_for(error):
    engine = Engine(regression(), seed=0, settings=EngineSettings(population=1, device="cpu"))

    def raising(*columns):
        raise error

    engine.evaluate = raising
    (found,) = LocalExecutor(engine).run("evaluate", TREES[:1], WEIGHTS[:1])
    assert isinstance(found, Failure)
    with pytest.raises(type(error)):
        LocalExecutor(engine, raises_memory_errors=True).run("evaluate", TREES[:1], WEIGHTS[:1])


def test_no_candidate_is_blamed_for_a_gpu_that_fails():
    engine = Engine(regression(), seed=0, settings=EngineSettings(population=2, device="cpu"))
    calls = []

    def raising(*columns):
        calls.append(columns)
        with users_code("training on planets"):
            raise torch.AcceleratorError("CUDA error: unspecified launch failure\nCompile with TORCH_USE_CUDA_DSA")

    engine.evaluate = raising
    with pytest.raises(DeviceError, match=r"^the GPU failed: CUDA error: unspecified launch failure$"):
        LocalExecutor(engine).run("evaluate", TREES[:2], WEIGHTS[:2])
    assert len(calls) == 1
