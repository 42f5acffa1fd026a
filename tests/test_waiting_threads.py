"""Threads of the command sleep while they wait; a program that imports evomal chooses for itself."""

import os
import subprocess
import sys

import pytest

CHOICES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
COMMAND = ("-m", "evomal", "losses")


def turns(*command, **chosen):
    """How often a waiting thread looks before it sleeps, as GNU's OpenMP says when torch loads it."""
    environment = {name: value for name, value in os.environ.items() if name not in CHOICES}
    done = subprocess.run(
        [sys.executable, *command], env={**environment, **chosen, "OMP_DISPLAY_ENV": "verbose"}, capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    found = {line.split("=")[1].strip(" '\"") for line in done.stderr.splitlines() if "GOMP_SPINCOUNT" in line}
    if not found:
        pytest.skip("torch has another OpenMP, or none")
    (number,) = found
    return number


def test_threads_of_the_command_sleep_while_they_wait():
    assert turns("-c", "import torch") != "0"
    assert turns(*COMMAND) == "0"


def test_the_choice_of_the_user_stays():
    assert turns(*COMMAND, OMP_WAIT_POLICY="ACTIVE") != "0"
    assert turns(*COMMAND, GOMP_SPINCOUNT="300") == "300"


def test_a_program_that_imports_evomal_is_not_changed():
    assert turns("-c", "import evomal, evomal.engine, torch") == turns("-c", "import torch")
