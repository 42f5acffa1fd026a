"""Settings shared by all tests."""

from hypothesis import settings

# Derandomised: a failure on one machine is a failure on every machine; no deadline, as timings are not what is tested.
settings.register_profile("evomal", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("evomal")
