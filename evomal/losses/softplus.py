"""log(1 + exp(x)), exact for every x."""

import torch.nn.functional as F
from torch import Tensor


def softplus(x: Tensor) -> Tensor:
    """Without the threshold of `F.softplus`, which from x = 20 on returns x and so loses eleven digits in float64."""
    return -F.logsigmoid(-x)
