"""Names of files and tasks, as a record keeps them."""

from evomal.cli.task_specs import absolute_file, absolute_task


def test_files_have_whole_paths_and_names_stay(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.json").touch()
    assert absolute_file("a.json") == str(tmp_path / "a.json")
    assert absolute_file("huber") == "huber"
    assert absolute_task("mine.py:make") == f"{tmp_path / 'mine.py'}:make"
    assert absolute_task("diabetes") == "diabetes"
