"""Tasks a user has written: what is wrong with a file is one sentence."""

import pytest

from evomal.errors import InputError
from evomal.tasks import task_from_file


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("def task(:\n", r"failed: SyntaxError: .* \(.*mine_bad\.py, line 1\)"),
        (
            "import nothing_of\n",
            r"failed: ModuleNotFoundError: No module named 'nothing_of' \(.*mine_bad\.py, line 1\)",
        ),
        ("x = 1\ndef task():\n    raise KeyError('k')\n", r"failed: KeyError: 'k' \(.*mine_bad\.py, line 3\)"),
        ("import sys\nsys.exit(0)\n", r"failed: SystemExit: 0 \(.*mine_bad\.py, line 2\)"),
        ("x = b'\\0'.decode('nothing')\n", r"failed: LookupError: .* \(.*mine_bad\.py, line 1\)"),
        ("def other(): pass\n", "has no function 'task'"),
        ("def task(): return 3\n", "task must return a Task but returned an int"),
    ],
)
def test_a_file_that_does_not_do_is_one_sentence(tmp_path, text, sentence):
    (tmp_path / "mine_bad.py").write_text(text)
    with pytest.raises(InputError, match=sentence):
        task_from_file(f"{tmp_path / 'mine_bad.py'}:task")


def test_a_file_may_import_its_neighbours_and_define_dataclasses(tmp_path):
    (tmp_path / "neighbour_of_mine.py").write_text("HIDDEN = 4\n")
    (tmp_path / "mine_good.py").write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\nfrom neighbour_of_mine import HIDDEN\n"
        "from evomal import load_task\n@dataclass\nclass Options:\n    hidden: int = HIDDEN\n"
        "def task(): return load_task('diabetes', f'mlp:hidden={Options().hidden}')\n"
    )
    assert task_from_file(f"{tmp_path / 'mine_good.py'}:task").name == "diabetes"
