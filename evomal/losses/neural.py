"""ML³: the loss as a small neural network of prediction and target (Bechtle et al., 2021)."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from evomal.checks import whole_number
from evomal.errors import InputError
from evomal.forest.programs import softplus
from evomal.losses.contract import is_eager
from evomal.losses.loss import Description, ElementwiseLoss, SourceCode
from evomal.text import short_repr

HIDDEN = 50
MAX_SIDE = 1_000
"""The most rows or columns of a matrix."""
NETWORK_FORMULA = "softplus(W3·relu(W2·relu(W1·(f, y))))"


class NeuralLoss(ElementwiseLoss):
    """softplus(W3 · relu(W2 · relu(W1 · (f, y)))), without biases, applied to every output by itself.

    Args:
        layers: Three matrices of shapes (h1, 2), (h2, h1) and (1, h2). Tensors are kept as they are, so that gradients
            reach them, and an `nn.Parameter` becomes a parameter of the module.
        contract: The arguments of `Loss`.

    Raises:
        InputError: The layers are not three such matrices of finite numbers, or another argument breaks its rule.

    Example:
        >>> loss = NeuralLoss(starting_layers(generator=torch.Generator().manual_seed(0)))
        >>> loss(torch.zeros(2, 3), torch.tensor([0, 1])).shape
        torch.Size([])
    """

    learned_tensors = ("first", "second", "last")

    def __init__(self, layers: Sequence[Tensor | Sequence[Sequence[float]]], **contract: Any) -> None:
        super().__init__(**contract)
        if not isinstance(layers, list | tuple):
            raise InputError(f"layers must be a list of three matrices but got {short_repr(layers)}")
        matrices = [_matrix(position, layer) for position, layer in enumerate(layers)]
        shapes = [tuple(layer.shape) for layer in matrices]
        if (
            len(shapes) != 3
            or shapes[0][1] != 2
            or shapes[2][0] != 1
            or shapes[0][0] != shapes[1][1]
            or shapes[1][0] != shapes[2][1]
        ):
            raise InputError(f"layers must be three matrices of shapes (h1, 2), (h2, h1) and (1, h2) but got {shapes}")
        self.first, self.second, self.last = matrices
        self._converted: tuple[tuple[Any, ...], list[Tensor]] = ((), [])

    @property
    def layers(self) -> list[Tensor]:
        """The three matrices in order."""
        return [self.first, self.second, self.last]

    def value(self, prediction: Tensor, target: Tensor) -> Tensor:
        return network_value(self._layers_like(prediction), prediction, target)

    def _layers_like(self, prediction: Tensor) -> list[Tensor]:
        """The matrices on the prediction's device, in its dtype.

        They are kept in double precision on the CPU, as in a loss file. A copy to the device at every step would make
        each step wait for it, so the last one is kept until a matrix changes.
        """
        if not is_eager(prediction) or any(layer.requires_grad for layer in self.layers):
            return [layer.to(prediction) for layer in self.layers]
        # Tensors made in inference mode cannot be used for training later, and have no version counter.
        if torch.is_inference_mode_enabled() or any(layer.is_inference() for layer in self.layers):
            return [layer.to(prediction) for layer in self.layers]
        state = (prediction.device, prediction.dtype, *((id(layer), layer._version) for layer in self.layers))
        if self._converted[0] != state:
            self._converted = state, [layer.to(prediction.device, prediction.dtype) for layer in self.layers]
        return self._converted[1]

    def formula(self) -> str:
        return NETWORK_FORMULA

    def display_form(self) -> None:
        return None

    def describe(self) -> Description:
        shapes = ", ".join("×".join(map(str, layer.shape)) for layer in self.layers)
        return Description("An ML³ network", f"matrices of {shapes}")

    def source(self, xp: str) -> SourceCode:
        make = "f.new_tensor" if xp == "torch" else "jnp.asarray"
        lines = []
        for name, layer in zip(("first", "second", "last"), self.layers, strict=True):
            rows = [f"    {row!r}," for row in layer.tolist()]
            lines += [f"{name} = {make}([", *rows, "])"]
        return SourceCode(
            "outputs",
            [
                *lines,
                f"hidden = {xp}.stack([f, y], -1) @ first.T",
                f"hidden = {xp}.maximum(hidden, 0 * hidden) @ second.T",
                f"value = ({xp}.maximum(hidden, 0 * hidden) @ last.T)[..., 0]",
                "return -logsigmoid(-value)  # softplus",
            ],
        )

    def extra_repr(self) -> str:
        return f"layers={[tuple(layer.shape) for layer in self.layers]}, {super().extra_repr()}"

    def _file_fields(self) -> tuple[str, dict[str, Any]]:
        return "neural", {"layers": [layer.tolist() for layer in self.layers]}


def network_value(layers: Sequence[Tensor], prediction: Tensor, target: Tensor) -> Tensor:
    """The network's output for every element, from its three matrices."""
    first, second, last = layers
    hidden = F.linear(torch.stack((prediction, target), dim=-1), first)
    hidden = F.linear(F.relu(hidden), second)
    return softplus(F.linear(F.relu(hidden), last)).squeeze(-1)


def weights_of(layers: Sequence[Tensor]) -> Tensor:
    """All entries of the matrices as one vector, layer by layer."""
    return torch.cat([layer.reshape(-1) for layer in layers])


def layers_of(weights: Tensor, hidden: int = HIDDEN) -> list[Tensor]:
    """The matrices of such a vector, as views of it."""
    if weights.shape[-1] != weight_count(hidden):
        raise InputError(
            f"a network of width {hidden} must have {weight_count(hidden)} weights but got {weights.shape[-1]}"
        )
    shapes = _shapes(hidden)
    parts = torch.split(weights, [rows * columns for rows, columns in shapes])
    return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]


def weight_count(hidden: int = HIDDEN) -> int:
    """Number of entries of the three matrices."""
    return sum(rows * columns for rows, columns in _shapes(hidden))


def starting_layers(hidden: int = HIDDEN, *, generator: torch.Generator) -> list[Tensor]:
    """Returns the matrices of a network to start from, Kaiming-normal (He et al., 2015).

    Args:
        hidden: The width of the two hidden layers.
        generator: The source of randomness.

    Returns:
        Three matrices for `NeuralLoss`, in double precision.

    Raises:
        InputError: An argument breaks its rule.

    Example:
        >>> [tuple(layer.shape) for layer in starting_layers(4, generator=torch.Generator().manual_seed(0))]
        [(4, 2), (4, 4), (1, 4)]
    """
    hidden = whole_number("hidden", hidden, at_least=1, at_most=MAX_SIDE)
    if not isinstance(generator, torch.Generator):
        raise InputError(f"generator must be a torch.Generator but got {short_repr(generator)}")
    layers = [torch.empty(shape, dtype=torch.float64) for shape in _shapes(hidden)]
    for layer in layers:
        torch.nn.init.kaiming_normal_(layer, generator=generator)
    return layers


def _shapes(hidden: int) -> tuple[tuple[int, int], ...]:
    return (hidden, 2), (hidden, hidden), (1, hidden)


def _matrix(position: int, layer: Tensor | Sequence[Sequence[float]]) -> Tensor:
    if isinstance(layer, Tensor):
        tensor = layer
    else:
        try:
            tensor = torch.tensor(layer, dtype=torch.float64)
        except (TypeError, ValueError, OverflowError, RuntimeError) as error:
            raise InputError(f"layer {position} must be a matrix of numbers: {error}") from None
    if tensor.dim() != 2 or not tensor.is_floating_point():
        raise InputError(f"layer {position} must be a matrix of numbers but has shape {tuple(tensor.shape)}")
    if not bool(torch.isfinite(tensor).all()):
        raise InputError(f"layer {position} must hold finite numbers")
    return tensor
