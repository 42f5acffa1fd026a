"""The actions of the buttons: stop a search, resume it, compare its best loss."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from evomal.errors import EvomalError, InputError
from evomal.files import open_foreign
from evomal.report.commands import compare_words
from evomal.runs.lock import held_for, is_held, request_stop
from evomal.runs.recorded_run import RunState
from evomal.runs.store import BEST_NAME
from evomal.runs.views import RunView
from evomal.server.library import OUTPUT_NAME


class Actions:
    """Starts and stops work on runs. The processes that it starts outlive the server."""

    def __init__(self, *, trust: bool = False) -> None:
        self._trust = trust
        self._started: dict[Path, subprocess.Popen[bytes]] = {}

    def stop(self, view: RunView) -> str:
        """Ask a running search to stop; returns what will happen."""
        if held_for(view.folder) != "search":
            raise InputError("the search is not running")
        request_stop(view.folder)
        return "The search stops after its current generation or after the current trainings of its final."

    def resume(self, view: RunView) -> str:
        """Start a process that resumes an interrupted search."""
        if view.head.state is RunState.COMPLETE:
            raise InputError("the search is complete")
        self._require_idle(view.folder)
        self._require_trust(view)
        trust = ["--trust"] if self._trust else []
        self._start(view.folder, ["resume", str(view.folder.resolve()), *trust])
        return "The search is being resumed."

    def compare(self, view: RunView) -> str:
        """Start a process that compares the best loss with the baseline."""
        self._require_idle(view.folder)
        self._require_trust(view)
        words = compare_words(view.sample(()))
        if words is None or not os.path.lexists(view.folder / BEST_NAME):
            raise InputError("there is no best loss to compare, or the record does not say on which task")
        self._start(view.folder, words[1:])
        return "The best loss is being compared with the baseline."

    def reap(self) -> None:
        """Forget processes that have ended."""
        self._started = {folder: process for folder, process in self._started.items() if process.poll() is None}

    def _require_idle(self, folder: Path) -> None:
        self.reap()
        if folder in self._started or is_held(folder):
            raise InputError("another process is working on this run")

    def _require_trust(self, view: RunView) -> None:
        """Refuse to run code or join a cluster that only the record names: the record may come from a stranger."""
        source = view.head.settings.get("source")
        tasks = source.get("tasks") if isinstance(source, Mapping) else None
        if not isinstance(tasks, list) or not all(isinstance(task, str) for task in tasks):
            raise InputError("the record does not say which tasks it is about: the search was started from Python")
        address = view.head.settings.get("workplace", {}).get("address")
        if not self._trust and (any(":" in task for task in tasks) or address is not None):
            raise InputError(
                "the record names a Python file or a Ray cluster, which this page does not use unless the server was "
                "started with --trust"
            )

    def _start(self, folder: Path, words: Sequence[str]) -> None:
        """Start an evomal command in a session of its own, with its output in the folder."""
        command = [sys.executable, "-m", "evomal", *words]
        with open_foreign(folder / OUTPUT_NAME, writable=True, create=True) as output:
            output.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} evomal {words[0]}\n".encode())
            output.flush()
            try:
                self._started[folder] = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output.fileno(),
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                raise EvomalError(f"the process cannot be started: {error.strerror}") from None
