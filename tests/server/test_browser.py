"""The live page in a real browser, Debian's Chromium: followed live, operated, and looked at in several sizes."""

import contextlib
import os
import re
import shutil
from pathlib import Path

import pytest

from evomal.losses import load_loss
from evomal.runs import load_run
from evomal.runs.lock import holder_of
from evomal.runs.recorded_run import RunState
from tests.server.pages import HOSTILE, address, run
from tests.server.servers import searching, server, wait_for

sync_api = pytest.importorskip("playwright.sync_api")
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [pytest.mark.browser, pytest.mark.skipif(BROWSER is None, reason="Chromium is not installed")]
SHOTS = os.environ.get("EVOMAL_SCREENSHOTS")
"""A folder for screenshots, to look at them."""


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextlib.contextmanager
def page_of(browser, *, width=1280, scheme="light"):
    """A page whose errors, dialogs and refused scripts fail the test."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page, wrong = context.new_page(), []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("dialog", lambda dialog: wrong.append(dialog.message))
    page.on("console", lambda line: wrong.append(line.text) if line.type == "error" else None)
    expected = "Failed to load resource"  # of a server that ended, or refused a token
    page.set_default_timeout(60_000)
    sync_api.expect.set_options(timeout=60_000)
    yield page
    context.close()
    assert [sentence for sentence in wrong if not sentence.startswith(expected)] == []


def shot(page, name):
    if SHOTS:
        page.screenshot(path=Path(SHOTS) / f"{name}.png")


def test_a_search_is_followed_stopped_resumed_and_exported(browser, tmp_path):
    folder = tmp_path / "run"
    with server(tmp_path) as (process, place, token), page_of(browser) as page:
        page.goto(f"{place}/#token={token}")
        assert token not in page.url
        with searching(folder, 60, pause=1.0):  # time to look at it on any machine
            page.get_by_role("link", name="run", exact=True).click()  # it appears by itself
            state, generation = page.locator("#status .badge"), page.locator("#status dd").nth(1)
            page.evaluate("window.neverReloaded = true")
            first = wait_for(lambda: int(generation.inner_text().split()[0]))
            wait_for(lambda: int(generation.inner_text().split()[0]) > first)
            assert state.inner_text() == "running"
            wait_for(lambda: "generation" in page.locator("#announcement").inner_text())
            shot(page, "running")

            point = page.locator(".chart a").last
            point.focus()
            hint = page.locator("figure:has(a:focus) .hint")
            assert point.get_attribute("data-hint") == hint.inner_text()
            page.keyboard.press("Enter")
            page.wait_for_url("**/candidates/*/*")
            with page.expect_download() as downloaded:
                page.get_by_role("link", name="JSON").click()
            downloaded.value.save_as(tmp_path / "loss.json")
            assert load_loss(tmp_path / "loss.json").kind == "regression"
            shot(page, "candidate")
            page.go_back()

            page.get_by_role("button", name="Stop after this generation").click()
            sync_api.expect(page.locator("#answer")).to_have_text(
                re.compile("The search stops after its current generation")
            )
            sync_api.expect(state).to_have_text("interrupted")
        stopped = load_run(folder)
        assert stopped.state is RunState.INTERRUPTED
        page.get_by_role("button", name="Resume").click()
        sync_api.expect(state).to_have_text("running")
        resumed = holder_of(folder).process
        assert os.getpriority(os.PRIO_PROCESS, resumed) == os.getpriority(os.PRIO_PROCESS, 0)
        sync_api.expect(state).to_have_text("complete")
        assert load_run(folder).generations == 60
        process.terminate()
        sync_api.expect(page.locator("#connection")).to_have_text("connection lost, trying again")
        page.goto("about:blank")
    assert stopped.generations < 60


@pytest.mark.long  # and part of `make test-browser`
def test_pages_fit_every_width_and_theme_and_hostile_names_do_nothing(browser, tmp_path):
    hostile = run(tmp_path / HOSTILE.replace("/", "_"), task=HOSTILE, method=HOSTILE, rivals={HOSTILE: 0.3, "mse": 0.4})
    plain = run(tmp_path / "plain", final={"mse": [0.5, 0.6], "2:1": [0.1, 0.2]})
    colours = {}
    with server(tmp_path) as (_, place, _):
        keys = [address(tmp_path, folder) for folder in (plain, hostile)]
        paths = [f"{key}{rest}" for key in keys for rest in ("", "/candidates", "/candidates/2/1")]
        paths += ["/", "/pair?" + "&".join(f"run={key.split('/')[-1]}" for key in keys)]
        for width in (400, 1280, 1600):
            for scheme in ("light", "dark")[: 1 if width == 1600 else 2]:
                with page_of(browser, width=width, scheme=scheme) as page:
                    for path in paths:
                        page.goto(place + path)
                        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (path, width)
                        assert page.locator("h1").count() == 1
                    colours[scheme] = page.evaluate("getComputedStyle(document.body).backgroundColor")
                    assert page.locator("script").count() == 1
        with page_of(browser) as page:  # by keyboard alone
            page.goto(place)
            page.keyboard.press("Tab")
            assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
            for _ in range(40):
                page.keyboard.press("Tab")
                if page.evaluate("document.activeElement.textContent") == "plain":
                    break
            page.keyboard.press("Enter")
            page.wait_for_url(f"**{keys[0]}")
            assert re.match("complete", page.locator("#status .badge").inner_text())
            page.get_by_label("token").fill("wrong")
            page.get_by_role("button", name="Compare").click()
            sync_api.expect(page.locator("#answer")).to_contain_text("The token is not the one")
            page.goto("about:blank")
    assert colours["light"] != colours["dark"]


@pytest.mark.long
def test_tabs_come_and_go_without_a_trace(browser, tmp_path):
    folder = run(tmp_path / "run", complete=False)
    with server(tmp_path) as (process, place, _):
        files = Path(f"/proc/{process.pid}/fd")
        if not files.exists():
            pytest.skip("descriptors are counted on Linux")
        with page_of(browser) as page:
            for _ in range(3):
                page.goto(place + address(tmp_path, folder))
                sync_api.expect(page.locator("#connection")).to_have_text("live")
            before = len(list(files.iterdir()))
            for _ in range(12):
                page.goto(place + address(tmp_path, folder))
                sync_api.expect(page.locator("#connection")).to_have_text("live")
            wait_for(lambda: len(list(files.iterdir())) <= before + 2)
