"""A worker process can be begun before anything slow is imported."""

import sys

from tests.processes import finished


def test_nothing_slow_is_imported():
    program = "import sys, evomal.worker_start; print(sorted({'torch', 'numpy', 'numba'} & {*sys.modules}))"
    assert finished([sys.executable, "-c", program], 60).stdout == "[]\n"
