"""Matrix products on a CPU whose bits do not depend on where in memory their operands lie.

Intel's library, which torch uses on x86, takes another path for operands that are aligned differently, as the members
of a stack are. Its strict mode of "conditional numerical reproducibility" rules that out and costs no measurable time.
The library reads its mode at the first matrix product of the process, so it is asked for when evomal is imported.
"""

import functools
import os

os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")


@functools.cache
def has_reproducible_products() -> bool:
    """Returns whether products of matrices that are aligned differently have the same bits, by trying some.

    They do not if matrices were multiplied before evomal was imported, or if the user chose another mode.
    """
    import torch

    generator = torch.Generator().manual_seed(0)
    for rows, inner, columns in ((17, 5, 10), (17, 10, 3), (7, 10, 10), (17, 33, 1)):
        left, right = (
            torch.randn(1, size, inner, generator=generator).expand(16, -1, -1).contiguous() for size in (rows, columns)
        )
        products = torch.bmm(left, right.transpose(1, 2))
        if not all(torch.equal(product, products[0]) for product in products):
            return False
    return True
