"""Names of files and tasks, as a record keeps them."""

from evomal.cli.options import whole_file, whole_task


def test_files_have_whole_paths_and_names_stay(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.json").touch()
    assert whole_file("a.json") == str(tmp_path / "a.json")
    assert whole_file("huber") == "huber"
    assert whole_task("mine.py:make") == f"{tmp_path / 'mine.py'}:make"
    assert whole_task("diabetes") == "diabetes"
