"""Matrix products on a CPU that do not depend on where in memory their operands lie.

Intel's library, which torch uses on x86, may take another path for operands that are aligned differently, and the
members of a stack are. Its mode "conditional numerical reproducibility, strict" rules that out and costs no time here.
It can be set only before the first matrix product of the process.
"""

import functools
import os

_SETTING = "MKL_CBWR"


def ask_for_reproducible_products() -> None:
    """Ask the library for the strict mode, unless the user has chosen a mode."""
    os.environ.setdefault(_SETTING, "AUTO,STRICT")


@functools.cache
def has_reproducible_products() -> bool:
    """Returns whether products of matrices that are aligned differently have the same bits, by trying some."""
    import torch

    generator = torch.Generator().manual_seed(0)
    for rows, inner, columns in ((17, 5, 10), (17, 10, 3), (7, 10, 10), (17, 33, 1)):
        left = torch.randn(1, rows, inner, generator=generator).expand(16, -1, -1).contiguous()
        right = torch.randn(1, columns, inner, generator=generator).expand(16, -1, -1).contiguous()
        products = torch.bmm(left, right.transpose(1, 2))
        if not all(torch.equal(product, products[0]) for product in products):
            return False
    return True
