"""The page on integrations shows code that runs, section by section, where the libraries of a section are installed."""

import re
from pathlib import Path

import pytest
import torch

from tests.integrations import library

PAGE = Path(__file__).parents[2] / "docs" / "integrations.md"
SECTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.DOTALL | re.MULTILINE))
LIBRARIES = {
    "pandas and matplotlib": ("pandas",),
    "scikit-learn": ("sklearn",),
    "skorch": ("skorch",),
    "Loggers for searches": ("tensorboard", "mlflow", "wandb"),
    "Hugging Face Trainer": ("transformers", "accelerate"),
    "Lightning": ("lightning",),
    "timm": ("timm",),
    "PyTorch itself": ("onnx", "onnxscript", "onnxruntime"),
}


def test_every_section_is_run():
    assert [*LIBRARIES] == [*SECTIONS]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One for all sections, as a reader has: what one writes must not stand in the way of another."""
    return tmp_path_factory.mktemp("page")


@pytest.mark.long  # it searches and exports; `make test-integrations` runs it
@pytest.mark.parametrize("section", SECTIONS)
def test_the_code_of_a_section_runs(section, folder, monkeypatch):
    for name in LIBRARIES[section]:
        library(name)
    monkeypatch.chdir(folder)
    blocks = re.findall(r"^```python\n(.*?)^```", SECTIONS[section], re.DOTALL | re.MULTILINE)
    names = {}
    with torch.random.fork_rng():
        for block in blocks:
            exec(compile(block, str(PAGE), "exec"), names)
    assert blocks
