"""Pages of the live server: what they show, how they are guarded, and what the buttons do."""

import asyncio
import contextlib
import errno
import json
import re
import sys
from dataclasses import replace

import pytest
from starlette.testclient import TestClient

from evomal.losses import load_loss
from evomal.report.report_page import forest_plot, report_page
from evomal.report.run_charts import search_chart
from evomal.report.run_report import run_report
from evomal.runs import load_run
from evomal.runs.lock import FolderLock, is_stop_requested
from evomal.server import actions, run_page
from evomal.server.guard import HEADERS
from evomal.server.library import OUTPUT_NAME, FollowedFolder
from evomal.verdict.comparison import Command
from evomal.verdict.folder import TrainingLog, write_result
from evomal.verdict.statistics import Paired
from tests.figures.records import record, row
from tests.server.pages import HOSTILE, TOKEN, address, application, run
from tests.verdict.results import comparison, entry


@pytest.fixture(scope="module")
def top(tmp_path_factory):
    """A complete run with a final, one that is interrupted, one that is damaged."""
    top = tmp_path_factory.mktemp("runs")
    run(top / "done", final={"mse": [0.5, 0.6], "2:1": [0.1, 0.2]})
    run(top / "deep" / "half", complete=False)
    (top / "broken").mkdir()
    (top / "broken" / "run.sqlite").write_bytes(b"no record")
    return top


@pytest.fixture(scope="module")
def client(top):
    return TestClient(application(top).app, base_url="http://localhost")


@pytest.fixture
def half(tmp_path):
    """A folder with one interrupted run, and a client."""
    folder, pages = run(tmp_path / "half", complete=False), application(tmp_path)
    client = TestClient(pages.app, base_url="http://localhost")
    client.library = pages.library
    return folder, client


def test_the_list_names_every_run(client, top):
    page = client.get("/").text
    for name in ("done", "deep/half", "broken"):
        assert f">{name}</a>" in page
    assert "is not the record of an evomal run" in page
    assert "3 runs: 1 complete, 1 damaged, 1 interrupted" in page
    assert "mse 0.55" in page  # the baseline in the final


def test_the_list_is_filtered_and_paged(client, top):
    assert ">deep/half</a>" not in client.get("/", params={"text": "done"}).text
    assert "No run matches" in client.get("/", params={"text": HOSTILE}).text
    assert "<script>alert" not in client.get("/", params={"text": HOSTILE}).text
    assert client.get("/?page=7").status_code == 200
    assert client.get("/?page=-1e9").status_code == 200


def test_the_page_of_a_run_has_every_section(client, top):
    page = client.get(address(top, top / "done")).text
    for name in ("status", "actions", "best", "verdict", "figures", "losses", "workers", "settings", "repeat"):
        assert f'id="{name}"' in page
    for title in ("Search", "Filters", "Size against fitness", "Shape", "Gradient", "Time by stage"):
        assert f"<figcaption>{title}</figcaption>" in page
    assert "<math" in page
    assert "Final: beats mse" in page
    assert re.search(r'<a href="/runs/\w+/candidates/2/\d" data-hint="0\.\d+, size \d+: ', page)
    assert "evomal compare diabetes" in page


def test_candidates_come_in_pages(client, top):
    place = f"{address(top, top / 'done')}/candidates"
    best = client.get(place).text
    assert "1 to 18 of 18, best first" in best
    newest = client.get(f"{place}?sort=newest").text
    assert newest.index("/candidates/2/5") < newest.index("/candidates/0/0")


def test_a_candidate_has_its_ancestry_scores_and_shape(client, top):
    page = client.get(f"{address(top, top / 'done')}/candidates/2/1").text
    for part in ('id="scores"', 'id="ancestry"', 'id="shape"', "3000: 0.1, 3001: 0.2", "0.15 ± 0.071", "<math"):
        assert part in page
    assert client.get(f"{address(top, top / 'done')}/candidates/2/99").status_code == 404
    assert client.get(f"{address(top, top / 'done')}/candidates/{10**30}/0").status_code == 404
    assert client.get(f"{address(top, top / 'done')}/candidates/{'9' * 5000}/0").status_code == 404


def test_exports_are_downloads(client, top, tmp_path):
    place = f"{address(top, top / 'done')}/candidates/2/1"
    python = client.get(f"{place}/python")
    assert python.headers["content-disposition"] == 'attachment; filename="done-3-1.py"'
    exec(compile(python.text, "exported", "exec"), {})
    assert client.get(f"{place}/latex").text.strip()
    (tmp_path / "loss.json").write_bytes(client.get(f"{place}/json").content)
    assert load_loss(tmp_path / "loss.json").provenance["chosen"] == "candidate 1 of generation 3"
    assert client.get(f"{place}/pickle").status_code == 404


def test_what_a_record_says_is_escaped(tmp_path):
    folder = run(tmp_path / HOSTILE.replace("/", "_"), task=HOSTILE, method=HOSTILE, rivals={HOSTILE: 0.3})
    client = TestClient(application(tmp_path).app, base_url="http://localhost")
    place = address(tmp_path, folder)
    for page in ("/", place, f"{place}/candidates", f"{place}/candidates/1/1"):
        answer = client.get(page)
        assert answer.status_code == 200
        assert "<script>alert" not in answer.text
        assert "\u202e" not in answer.text
        assert ">49<" not in answer.text
        scripts = re.findall(r"<script[^>]*>", answer.text)
        assert scripts == ['<script src="/static/live.js" defer>']
        assert not re.search(r"\son\w+=|javascript:|\sstyle=", re.sub(r">[^<]*<|\"[^\"]*\"", "", answer.text))


def test_every_answer_has_the_headers(client):
    for place in ("/", "/nothing", "/static/live.js", "/static/style.css"):
        headers = client.get(place).headers
        assert {name: headers[name] for name in HEADERS} == HEADERS
    assert "unsafe" not in HEADERS["content-security-policy"]


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "localhost@evil.com", "", "[::1", "a b"])
def test_other_hosts_are_refused(client, host):
    assert client.get("/", headers={"host": host}).status_code == 421


@pytest.mark.parametrize("host", ["localhost:8123", "127.0.0.1", "[::1]:8123", "10.1.2.3:80", "LOCALHOST"])
def test_own_hosts_are_served(client, host):
    assert client.get("/static/icon.svg", headers={"host": host}).status_code == 200


def test_named_hosts_are_served(tmp_path):
    client = TestClient(application(tmp_path, names=("box.lan",)).app, base_url="http://box.lan:8123")
    assert client.get("/").status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"}, {"origin": "null"}, {"origin": "http://["},
        {"sec-fetch-site": "cross-site"},
    ],
)  # fmt: skip
def test_other_origins_cannot_act(half, headers):
    folder, client = half
    place = f"{address(folder.parent, folder)}/stop"
    with held(folder):
        answer = client.post(place, headers={"x-evomal-token": TOKEN, **headers})
    assert answer.status_code == 403
    assert not is_stop_requested(folder)


@contextlib.contextmanager
def held(folder):
    """The folder in use, as by a running search."""
    lock = FolderLock(folder)
    try:
        yield
    finally:
        lock.release()


@pytest.mark.parametrize("action", ["stop", "resume", "compare"])
@pytest.mark.parametrize("token", ["", "wrong", TOKEN + "x", "é"])
def test_without_the_token_nothing_happens(half, action, token, monkeypatch):
    folder, client = half
    monkeypatch.setattr(actions.subprocess, "Popen", None)
    place = f"{address(folder.parent, folder)}/{action}"
    with held(folder):
        assert client.post(place, data={"token": token}).status_code == 403
        assert client.post(place, headers={"x-evomal-token": token.encode()}).status_code == 403
        assert (client.get(place).status_code, client.get(place).headers["allow"]) == (405, "POST")
    assert not is_stop_requested(folder)


def test_a_running_search_is_asked_to_stop(half):
    folder, client = half
    place = address(folder.parent, folder)
    answer = client.post(f"{place}/stop", headers={"x-evomal-token": TOKEN})
    assert (answer.status_code, answer.json()["sentence"]) == (409, "The search is not running.")
    with held(folder):
        assert client.post(f"{place}/stop", data={"token": TOKEN}, follow_redirects=False).status_code == 303
        assert is_stop_requested(folder)
        client.library.refresh()
        assert "has been asked to stop" in client.get(place).text
    client = TestClient(application(folder.parent).app, base_url="http://localhost")
    assert "has been asked to stop" not in client.get(place).text


def test_a_comparison_in_the_folder_of_a_run_is_no_search(half):
    folder, client = half
    place = address(folder.parent, folder)
    with TrainingLog(folder, {}):
        answer = client.post(f"{place}/stop", headers={"x-evomal-token": TOKEN})
        assert (answer.status_code, answer.json()["sentence"]) == (409, "The search is not running.")
        client.library.refresh()
        ((key, followed),) = client.library.runs.items()
        assert str(followed.summary.state) == str(load_run(folder).state) == "interrupted"
        assert client.library.comparisons[key].view.is_running
        again = client.post(f"{place}/resume", headers={"x-evomal-token": TOKEN})
        assert again.json()["sentence"] == "Another process is working on this run."


def test_the_buttons_begin_processes_of_their_own(half, monkeypatch):
    folder, client = half
    begun = []

    class Process:
        def __init__(self, words, **options):
            begun.append((words, options["start_new_session"]))

        def poll(self):
            return None

    monkeypatch.setattr(actions.subprocess, "Popen", Process)
    place = address(folder.parent, folder)
    token = {"x-evomal-token": TOKEN}
    assert client.post(f"{place}/resume", headers=token).json()["sentence"] == "The search is being resumed."
    assert begun == [([sys.executable, "-m", "evomal", "resume", str(folder)], True)]
    assert (folder / OUTPUT_NAME).read_text().endswith("evomal resume\n")
    again = client.post(f"{place}/compare", headers=token)
    assert (again.status_code, again.json()["sentence"]) == (409, "Another process is working on this run.")


def test_a_comparison_is_begun_with_the_words_of_the_report(half, monkeypatch):
    folder, client = half
    begun = []
    monkeypatch.setattr(actions.subprocess, "Popen", lambda words, **_: begun.append(words))
    client.post(f"{address(folder.parent, folder)}/compare", headers={"x-evomal-token": TOKEN})
    assert begun[0][3:6] == ["compare", "diabetes", "--model"]


@pytest.mark.parametrize("settings", [{"source": {"tasks": ["evil.py:task"], "model": None, "hardships": {}}},
                                      {"workplace": {"executor": "ray", "address": "ray://evil"}}])  # fmt: skip
@pytest.mark.parametrize("action", ["resume", "compare"])
def test_what_only_a_record_names_is_not_run(tmp_path, settings, action, monkeypatch):
    folder = run(tmp_path / "run", complete=False, **settings)
    monkeypatch.setattr(actions.subprocess, "Popen", None)
    client = TestClient(application(tmp_path).app, base_url="http://localhost")
    answer = client.post(f"{address(tmp_path, folder)}/{action}", headers={"x-evomal-token": TOKEN})
    assert answer.status_code == 409
    assert "--trust" in answer.json()["sentence"]


def test_output_of_a_process_is_shown_as_text(half):
    folder, client = half
    (folder / OUTPUT_NAME).write_text("a line\n<b>bold</b>\x1b[31m\n")
    page = client.get(address(folder.parent, folder)).text
    assert "&lt;b&gt;bold&lt;/b&gt;\\x1b[31m" in page
    (folder / OUTPUT_NAME).unlink()
    (folder / OUTPUT_NAME).symlink_to("/etc/passwd")
    assert run_page.log_tail(folder) == ""


def test_large_bodies_are_refused(half):
    folder, client = half
    answer = client.post(f"{address(folder.parent, folder)}/stop", content=b"token=" + b"x" * 20_000)
    assert answer.status_code == 413


def test_the_answers_for_scripts_are_json(client, top):
    answer = client.post(f"{address(top, top / 'done')}/stop", headers={"x-evomal-token": "wrong"})
    assert json.loads(answer.text)["sentence"].startswith("The token is not the one")


def test_a_comparison_has_its_intervals_verdicts_and_table(tmp_path):
    difference = Paired(5, -0.1, -0.2, -0.05, 0.0625, "Wilcoxon", 5, 0, 0)
    huber = replace(entry("huber", "plain", 0.1, [0.4, 0.4]), difference=difference)
    found = comparison(
        entry("mse", "plain", 0.1, [0.5, 0.5]), huber, verdicts={"huber": ("gain", "huber <b>gains</b>")}
    )
    (tmp_path / "compared" / "searches").mkdir(parents=True)
    run(tmp_path / "compared" / "searches" / "evomal-0")
    write_result(found, tmp_path / "compared")
    client = TestClient(application(tmp_path).app, base_url="http://localhost")
    page = client.get(address(tmp_path, tmp_path / "compared", "comparisons")).text
    parts = (
        'id="plots"',
        "<figcaption>Differences to mse<",
        'stroke="var(--green)"',
        'id="runs"',
        "huber &lt;b&gt;gains",
    )
    assert [part for part in (*parts, "all seeds") if part not in page] == []
    search = client.get(address(tmp_path, tmp_path / "compared" / "searches" / "evomal-0")).text
    assert f'<a href="{address(tmp_path, tmp_path / "compared", "comparisons")}">Part of a comparison.</a>' in search
    assert client.get("/comparisons/nothing").status_code == 404


def test_the_folder_of_a_comparison_s_command_keeps_its_capital_letters(tmp_path):
    command = Command(("evomal", "compare", "diabetes"), "/home/Ada/Runs")
    (tmp_path / "compared").mkdir()
    write_result(comparison(command=command), tmp_path / "compared")
    client = TestClient(application(tmp_path).app, base_url="http://localhost")
    page = client.get(address(tmp_path, tmp_path / "compared", "comparisons")).text
    assert "Run it from the folder /home/Ada/Runs." in page


@pytest.mark.parametrize(("metric", "label"), [("mse", "in mse<"), ("r2", "in cost, −r2<")])
def test_intervals_are_labelled_by_what_they_are_of(metric, label):
    difference = Paired(5, -0.1, -0.2, -0.05, 0.0625, "Wilcoxon", 5, 0, 0)
    better = replace(entry("huber", "plain", 0.1, [0.4]), difference=difference)
    found = forest_plot("", comparison(better, metric=metric, higher_is_better=metric == "r2"))
    assert label in found.svg
    assert "Left of zero is better" in found.note


def test_a_baseline_far_off_is_told_beside_the_chart(tmp_path):
    followed = FollowedFolder(run(tmp_path / "run", 40, rivals={"mse": 1e6, "huber": 0.4}), "key", "run")
    followed.refresh()
    chart = search_chart(followed.view, followed.view.head)
    assert ("dashed", "grey", "baseline mse: 1e+06, beyond the axis") in chart.legend
    assert chart.svg.count('class="dashed"') == 0


def test_two_runs_are_shown_side_by_side(tmp_path):
    folders = [run(tmp_path / "one"), run(tmp_path / "other", seed=9)]
    client = TestClient(application(tmp_path).app, base_url="http://localhost")
    keys = [address(tmp_path, folder).split("/")[-1] for folder in folders]
    page = client.get("/pair", params={"run": keys}).text
    assert page.count("<article>") == 2
    assert re.search(r'<th scope="row">seed</th><td class="words">0</td><td class="words">9</td>', page)
    for chosen in ([], keys[:1], [keys[0], keys[0]], [keys[0], "nothing"]):
        assert "Two runs must be chosen but got" in client.get("/pair", params={"run": chosen}).text


def test_a_run_that_is_named_twice_takes_no_other_page(tmp_path):
    keys = [address(tmp_path, run(tmp_path / name)).split("/")[-1] for name in ("one", "two", "three")]
    client = TestClient(application(tmp_path).app, base_url="http://localhost")
    for other in (1, 2):
        page = client.get("/pair", params={"run": [keys[0], keys[0], keys[other]]}).text
        assert f"/runs/{keys[other]}" in page


def test_a_run_without_survivors_has_no_curve_and_no_token_to_give(tmp_path):
    folder = record(tmp_path / "run", [row(0, 0), row(1, 0)], metric="mse", task="diabetes", rivals={"mse": 0.5})
    page = TestClient(application(tmp_path).app, base_url="http://localhost").get(address(tmp_path, folder)).text
    assert "no candidate passed the filters" in page
    assert "best candidate so far" not in page
    assert "data-actions" not in page  # there is nothing to resume or to compare


def test_the_points_of_a_report_lead_nowhere_and_those_of_the_page_to_candidates(top, client):
    frozen, live = report_page(run_report(top / "done")), client.get(address(top, top / "done")).text
    for title in ("Search", "Filters", "Size against fitness", "Shape", "Gradient", "Time by stage"):
        assert f"<figcaption>{title}</figcaption>" in frozen
        assert f"<figcaption>{title}</figcaption>" in live
    assert re.search(r"<g><circle [^>]*><circle [^>]*><title>0\.\d+, size \d+: ", frozen)
    assert "/candidates/" not in frozen


def test_a_request_that_is_broken_off_is_no_error(half):
    folder, client = half

    async def broken_off():
        sent, left = [], [{"type": "http.request", "body": b"token=", "more_body": True}, {"type": "http.disconnect"}]
        scope = {
            "type": "http", "method": "POST", "path": f"{address(folder.parent, folder)}/stop", "query_string": b"",
            "headers": [(b"host", b"localhost")],
        }  # fmt: skip

        async def receive():
            return left.pop(0)

        async def send(message):
            sent.append(message.get("status"))

        await client.app(scope, receive, send)
        return sent[0]

    assert asyncio.run(broken_off()) == 400


def test_workers_of_a_cluster_are_told(tmp_path):
    places = [{"executor": "ray", "workers": 3}, {"executor": "ray", "workers": None}, {"executor": "local"}]
    for number, workplace in enumerate(places):
        followed = FollowedFolder(run(tmp_path / str(number), workplace=workplace), "key", "run")
        followed.refresh()
        found = dict(run_page.worker_entries(followed.view)).get("workers")
        assert found == ("3", "as many as the cluster has room for", None)[number]


@pytest.mark.parametrize("place", ["process", "log"])
def test_what_the_system_refuses_is_told(half, monkeypatch, place):
    folder, client = half

    def refuse(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    if place == "process":
        monkeypatch.setattr(actions.subprocess, "Popen", refuse)
    else:
        monkeypatch.setattr("evomal.files.os.open", refuse)
    answer = client.post(f"{address(folder.parent, folder)}/resume", headers={"x-evomal-token": TOKEN})
    assert answer.status_code == 500
    begin = "The process cannot be started" if place == "process" else f"{folder / OUTPUT_NAME}: cannot be written"
    assert answer.json()["sentence"] == f"{begin}: No space left on device."
