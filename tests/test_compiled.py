"""CPU kernels are cached where possible and still compile where not."""

import numba

from evomal.compiled import kernel


def add_one(x):
    return x + 1


def test_a_kernel_is_cached_and_releases_the_lock():
    compiled = kernel()(add_one)
    assert compiled(1) == 2
    assert compiled.targetoptions["nogil"]
    assert compiled.stats.cache_path


def test_without_a_place_for_the_cache_it_compiles_anyway(monkeypatch):
    plain = numba.njit

    def njit(**options):
        if options.pop("cache", False):
            raise RuntimeError("cannot cache function: no locator available")
        return plain(**options)

    monkeypatch.setattr(numba, "njit", njit)
    assert kernel()(add_one)(1) == 2
