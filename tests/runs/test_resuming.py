"""What may differ when a record is resumed: memory that other processes share, but no chunk."""

import pytest

from evomal.errors import InputError
from evomal.runs import RunStore
from evomal.runs.run_loop import search
from tests.engine.populations import regression
from tests.protocols import ONE_TRAINING

SHORT = {
    **ONE_TRAINING, "population": 4, "generations": 1, "training_steps": 10, "filter_steps": 10, "meta_steps": 2,
    "device": "cpu",
}  # fmt: skip


@pytest.fixture
def change_plans(tmp_path):
    """Search, then write something else for the plans of the record."""
    search(regression(), seed=1, folder=tmp_path, **SHORT)

    def change(plans):
        with RunStore.open(tmp_path) as store:
            recorded = store.settings
            (plan,) = recorded["plans"]
            store.change_settings({**recorded, "plans": plans(plan)})

    return change


def test_plans_may_differ_in_predicted_memory(change_plans, tmp_path):
    change_plans(lambda plan: [{**plan, "predicted_bytes": 413136}])
    result = search(regression(), seed=1, folder=tmp_path, **SHORT)
    assert len(result.history) == 1


@pytest.mark.parametrize(
    "plans",
    [
        lambda plan: [{**plan, "trial_chunk": plan["trial_chunk"] + 1}], lambda plan: [plan, plan], lambda plan: [1],
        lambda plan: {"a": plan},
    ],
)  # fmt: skip
def test_other_plans_are_those_of_another_search(plans, change_plans, tmp_path):
    change_plans(plans)
    with pytest.raises(InputError, match="is the record of another search: plans"):
        search(regression(), seed=1, folder=tmp_path, **SHORT)
