"""How threads of OpenMP, which torch computes with, wait for each other. To be imported before torch."""

import os


def let_threads_sleep() -> None:
    """Let threads that wait for others sleep, unless the user has chosen how they wait.

    By default they keep their processor busy for some milliseconds. If another program uses the processor of the thread
    that they wait for, every part of a training step then takes as long as the system's scheduler does: on two
    processors, one of them busy, a search with two threads took eight times as long as with one. On idle processors
    sleeping costs little. OpenMP reads the choice when torch is imported. Only the command calls this, whose processes
    inherit it: a program that imports evomal chooses for itself.
    """
    if not {"GOMP_SPINCOUNT", "KMP_BLOCKTIME"} & os.environ.keys():
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
