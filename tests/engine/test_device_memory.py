"""The memory of a GPU: what a process may use, what is kept of it, and what happens where it is short."""

import dataclasses
import os
from types import SimpleNamespace

import pytest
import torch

from evomal.engine import Engine, EngineSettings, Trial
from evomal.engine.device_memory import is_out_of_memory, limit_memory, machine_bytes, share_gpu, usable_bytes
from evomal.engine.plans import make_plan
from evomal.engine.stacked import TrialStack
from evomal.engine.trials import KeptStacks
from evomal.engine.workspace import Workspace
from evomal.errors import InputError, UserCodeError
from evomal.losses import CATALOGUE
from evomal.losses.loss import WeightedTree
from evomal.tasks.models import make_model
from evomal.users_code import users_code
from tests.engine.populations import SMOOTH, regression, weights_of
from tests.engine.test_plans import facts

GIB = 2**30
CUDA = torch.device("cuda")
TREES = [WeightedTree(tree, row) for tree, row in zip(SMOOTH, weights_of(SMOOTH), strict=True)]


def test_what_torch_raises_for_too_much_at_once_is_a_memory_error():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**50)
    assert is_out_of_memory(caught.value)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"), True),
        (RuntimeError("Triton Error [CUDA]: out of memory"), True),
        (RuntimeError("shapes cannot be multiplied"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_other_memory_errors_are_known_by_their_class_or_words(error, expected):
    assert is_out_of_memory(error) is expected


def test_processes_that_share_a_gpu_share_its_memory(gpu):
    limit_memory(CUDA)
    assert usable_bytes(CUDA) == 16 * GIB
    share_gpu(4)
    limit_memory(CUDA)
    # Contexts and libraries of four processes are not torch's.
    assert 3 * GIB < usable_bytes(CUDA) < 4 * GIB
    share_gpu(64)
    limit_memory(CUDA)
    assert usable_bytes(CUDA) == 16 * GIB // 128


def test_they_also_share_the_memory_of_the_machine(gpu, monkeypatch):
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 32 * GIB // 4096}.__getitem__)
    assert machine_bytes() == 32 * GIB
    share_gpu(4)
    assert machine_bytes() == 8 * GIB
    monkeypatch.delattr(os, "sysconf")
    assert machine_bytes() == 0


def test_processes_share_the_part_that_the_user_has_set(gpu):
    gpu.fraction = 0.5
    share_gpu(2)
    for _ in range(2):  # an engine after another
        limit_memory(CUDA)
        assert 3 * GIB < usable_bytes(CUDA) < 4 * GIB


def test_a_device_without_memory_of_its_own_has_no_limit(gpu):
    share_gpu(4)
    limit_memory(torch.device("cpu"))
    assert gpu.fraction == 1.0


def lenet5_plan(**settings):
    module = make_model("lenet5", (1, 28, 28), 10)
    return make_plan(module, facts(module, (1, 28, 28)), EngineSettings(**settings), device=CUDA, batch=100)


def test_chunks_fit_a_small_gpu_whoever_shares_it(gpu):
    alone = lenet5_plan(population=4000)
    assert alone.trial_chunk * alone.trial_bytes <= 4 * GIB
    assert alone.training_chunk * alone.trial_bytes <= 4 * GIB
    gpu.fraction = 0.9
    # A search that is resumed beside other processes must not differ from its record.
    assert lenet5_plan(population=4000).record() == alone.record()
    assert not any("bytes" in name for name in alone.record())


def test_a_model_that_does_not_fit_into_its_share_is_refused(gpu):
    gpu.fraction = 1 / 16
    assert lenet5_plan(population=4000).predicted_bytes < GIB  # stacks are made smaller
    with pytest.raises(InputError, match=r"but this process has 1\.0 GiB of the device: .* fewer processes have more"):
        lenet5_plan(population=4000, deterministic=True)
    gpu.fraction = 0.001
    with pytest.raises(InputError, match=r"but this process has 0\.0 GiB of the device"):
        lenet5_plan(population=100)


def test_stacks_fit_into_the_share_of_a_process(gpu):
    gpu.fraction = 1 / 16
    plan, settings = lenet5_plan(population=4000), EngineSettings(population=4000)
    shared, alone = (
        Workspace([], [plan], seed=0, settings=dataclasses.replace(settings, deterministic=deterministic), device=CUDA)
        for deterministic in (False, True)
    )
    assert shared.meta_chunk == GIB // 4 // plan.meta_bytes
    assert alone.meta_chunk == plan.meta_chunk > shared.meta_chunk


def test_the_oldest_stacks_make_room():
    kept = KeptStacks(10)
    kept.keep("a", "first", 4)
    kept.keep("b", "second", 4)
    kept.keep("c", "third", 4)
    assert [kept.take(key) for key in "abc"] == [None, "second", "third"]
    kept.keep("a", "first", 4)
    kept.keep("b", "too large", 11)
    assert [kept.take(key) for key in "ab"] == [None, None]
    kept.keep("a", "first", 4)
    assert kept
    kept.clear()
    assert not kept


def engine():
    settings = EngineSettings(device="cpu", meta_steps=1, population=1, training_steps=25, population_mode="stacked")
    return Engine(regression(), seed=0, settings=settings)


def trials():
    losses = [*TREES[:3], CATALOGUE["huber"](kind="regression")]
    return [Trial(loss, lr, seed) for seed in (3, 4) for loss in losses for lr in (0.02, 0.05)]


@pytest.fixture
def short_of_memory(monkeypatch):
    """Memory for stacks of that many places, and the numbers of places that were asked for."""
    begin, limit = TrialStack.start, SimpleNamespace(places=4, error=torch.OutOfMemoryError("CUDA out of memory"))
    limit.asked = []

    def start(stack, groups, **options):
        limit.asked.append(stack.groups * stack.members)
        if limit.asked[-1] > limit.places:
            raise limit.error
        begin(stack, groups, **options)

    monkeypatch.setattr(TrialStack, "start", start)
    return limit


def test_where_memory_is_short_stacks_are_halved_and_give_the_same_results(short_of_memory):
    short_of_memory.places = 1000
    whole = engine().run_trials(trials(), horizons=[10, 25], test=True)
    assert short_of_memory.asked == [16]
    short_of_memory.places, short_of_memory.asked = 4, []
    limited = engine()
    words = "memory is short, so at most [84] trials run together: CUDA out of memory"
    with pytest.warns(UserWarning, match=words) as warned:
        assert limited.run_trials(trials(), horizons=[10, 25], test=True) == whole
    assert len(warned) == 2
    assert short_of_memory.asked == [16, 8, 4, 4, 4, 4]
    # It remembers what fits.
    short_of_memory.asked = []
    assert limited.run_trials(trials(), horizons=[10, 25], test=True) == whole
    assert short_of_memory.asked == [4, 4, 4, 4]


def test_stacks_that_wait_are_given_up_before_any_is_halved(short_of_memory):
    limited = engine()
    limited._workspace._kept_stacks = kept = KeptStacks(GIB)
    kept.keep("a", "waiting", 1)
    short_of_memory.places = 12
    with pytest.warns(UserWarning, match="at most 8 trials run together"):
        limited.run_trials(trials())
    assert short_of_memory.asked == [16, 16, 8, 8]
    assert kept.take("a") is None


@pytest.mark.filterwarnings("ignore:memory is short")
def test_the_error_is_raised_if_not_even_the_smallest_stack_fits(short_of_memory):
    short_of_memory.places = 0
    with pytest.raises(UserCodeError, match="CUDA out of memory"):
        engine().run_trials(trials())


def test_a_kept_stack_that_fails_itself_is_halved(monkeypatch):
    """A stack is kept before it is evaluated, and would be found again and again."""

    def validated(stack, *, usual=TrialStack.validated):
        evaluated.append(stack.groups * stack.members)
        if evaluated[-1] > 4:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return usual(stack)

    monkeypatch.setattr(TrialStack, "validated", validated)
    evaluated, alone = [], engine()
    alone._workspace._kept_stacks = KeptStacks(GIB)
    runner = alone._workspace.trials(0)
    runner._plan = dataclasses.replace(runner._plan, is_recurring=True)
    trees = [Trial(tree, lr, seed) for seed in (3, 4) for tree in TREES[:4] for lr in (0.02, 0.05)]
    with pytest.warns(UserWarning, match="memory is short"):
        assert len(runner.run(trees, horizons=[25])) == 16
    assert evaluated == [16, 8, 4, 4, 4, 4]


def test_a_stack_that_cannot_be_halved_has_the_room_of_those_that_wait(short_of_memory):
    limited = engine()
    limited._workspace._kept_stacks = kept = KeptStacks(GIB)
    kept.keep("a", "waiting", 1)
    limited.run_trials(trials()[:1])  # as small as stacks are
    assert kept
    begin, short_of_memory.places = TrialStack.start, 0

    def start(stack, groups, **options):
        short_of_memory.places = 0 if kept else 1000
        begin(stack, groups, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrialStack, "start", start)
        limited.run_trials(trials()[:1])
    assert not kept


def test_steps_that_are_taken_again_are_reported_once(monkeypatch):
    def validated(stack, *, usual=TrialStack.validated):
        if stack.groups * stack.members > 4:
            with users_code("the metric"):  # which a user may have written
                raise torch.OutOfMemoryError("CUDA out of memory")
        return usual(stack)

    monkeypatch.setattr(TrialStack, "validated", validated)
    reported = []
    with pytest.warns(UserWarning, match="memory is short"):
        engine().run_trials(trials(), report=reported.append)
    assert sum(reported) == 16 * 25
    assert all(steps > 0 for steps in reported)


def test_other_errors_are_raised_at_once(short_of_memory):
    short_of_memory.error = RuntimeError("shapes cannot be multiplied")
    with pytest.raises(UserCodeError, match="shapes"):
        engine().run_trials(trials())
    assert short_of_memory.asked == [16]


def test_what_was_reached_is_not_reached_twice(monkeypatch):
    def advance(stack, steps, report=None, *, begin=TrialStack.advance):
        if steps > 10:
            raise torch.OutOfMemoryError("CUDA out of memory")
        begin(stack, steps, report)

    monkeypatch.setattr(TrialStack, "advance", advance)
    seen = []
    with pytest.raises(UserCodeError, match="CUDA out of memory"):
        engine().run_trials(trials(), horizons=[10, 25], watch=lambda place, steps, _: seen.append((place, steps)))
    assert sorted(seen) == [(place, 10) for place in range(16)]
