"""The tasks of the examples in small versions."""

import importlib.util
from pathlib import Path
from types import ModuleType

import evomal

EXAMPLES = Path(__file__).parents[1] / "examples"
SMALL: dict[str, dict[str, int]] = {
    "imbalanced_table": {"rows": 400},
    "several_outputs": {"rows": 90},
    "fine_tuning": {"steps": 5, "labelled": 40},
    "augmented_images": {"most": 120},
    "text_classification": {"most": 40},
    "tagging": {"count": 60},
    "segmentation": {"count": 30},
}
"""The arguments of each example's `make_task`."""


def example(name: str) -> ModuleType:
    """The module of an example, freshly imported."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def small_task(name: str) -> evomal.Task:
    """The task of an example."""
    task: evomal.Task = example(name).make_task(**SMALL[name])
    return task
