"""Threads of the command sleep while they wait; a program that imports evomal chooses for itself."""

import os
import subprocess
import sys

import pytest

CHOICES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")


def policy(*command, **chosen):
    """What OpenMP says of itself when torch loads it."""
    environment = {name: value for name, value in os.environ.items() if name not in CHOICES}
    done = subprocess.run(
        [sys.executable, *command], env={**environment, **chosen, "OMP_DISPLAY_ENV": "true"}, capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    found = {line.split("=")[1].strip(" '\"").upper() for line in done.stderr.splitlines() if "OMP_WAIT_POLICY" in line}
    if not found:
        pytest.skip("torch has another OpenMP, or none")
    return found


COMMAND = ("-m", "evomal", "losses")


def test_threads_of_the_command_sleep_while_they_wait():
    assert policy(*COMMAND) == {"PASSIVE"}


def test_the_choice_of_the_user_stays():
    assert policy(*COMMAND, OMP_WAIT_POLICY="ACTIVE") == {"ACTIVE"}
    assert policy(*COMMAND, GOMP_SPINCOUNT="300") == policy("-c", "import torch", GOMP_SPINCOUNT="300")


def test_a_program_that_imports_evomal_is_not_changed():
    own = "import torch"
    assert policy("-c", f"import evomal, evomal.engine; {own}") == policy("-c", own)
