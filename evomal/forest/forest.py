"""Losses, gradients and mixed gradients of many expressions at once."""

import importlib
from collections.abc import Sequence
from types import ModuleType

import torch
from torch import Tensor

from evomal.checks import KINDS, one_of
from evomal.errors import InputError
from evomal.expression import Expression
from evomal.extras import has_numba, has_triton
from evomal.forest import torch_backend
from evomal.forest.codes import Link
from evomal.forest.programs import ACTIVATIONS, FILLER, Programs, dense_targets, mean_scale, row_shares
from evomal.forest.terminals import check_terminals, output_priors

BACKENDS = ("auto", "torch", "numba", "triton")
"""torch: plain operations anywhere; numba: kernels on the CPU; triton: kernels on CUDA; auto: what fits the tensors."""

_DTYPES = (torch.float32, torch.float64)


class Forest:
    """P expressions over the outputs `[P, B, K]` of as many models, or over `[B, K]` shared by all of them.

    The loss of every expression is that of `ExpressionLoss` with the same kind and activation, reduced by `mean`.
    Weights are `[P, N]` (see `Programs`). Targets are a task's own, or already dense: `[B, K]` in floating point.
    Losses and gradients also take `[G, B, K]`: the expressions are then G consecutive groups of equal size, each with
    targets of its own. Row weights are `[B]`, or `[G, B]` where targets have groups: the loss is then Σ w·l / Σ w. Rows
    of weight 0 have no effect, whatever their outputs are.

    `priors` are those of `ExpressionLoss`: the share of each class in the training rows, two for a single logit; None
    for equal shares.
    `extended`: whether `replace` may bring in tokens that the paper does not have; None: only if these expressions have
    some.
    """

    def __init__(
        self,
        expressions: Sequence[Expression],
        *,
        kind: str,
        outputs: int,
        activation: str = "identity",
        device: torch.device | str = "cpu",
        backend: str = "auto",
        width: int | None = None,
        extended: bool | None = None,
        priors: Sequence[float] | Tensor | None = None,
    ) -> None:
        one_of("kind", kind, KINDS)
        one_of("activation", activation, ACTIVATIONS)
        if outputs < 1:
            raise InputError(f"outputs must be at least 1 but got {outputs}")
        self.kind = kind
        self.outputs = outputs
        self.activation = activation
        self._softplus = activation == "softplus"
        self.link = Link.of(kind, outputs)
        self._check_tokens(expressions)
        shares = output_priors(priors, self.link, kind, outputs)
        self.programs = Programs.of(expressions, width=width, device=device, extended=extended, priors=shares)
        self.backend = _checked_backend(backend, self.programs.device)

    @property
    def count(self) -> int:
        """Number of expressions, P."""
        return self.programs.count

    @property
    def width(self) -> int:
        """Largest number of nodes of an expression, N."""
        return self.programs.width

    def replace(self, expressions: Sequence[Expression]) -> None:
        """Replace the expressions in the same memory, so that a captured CUDA graph sees the new ones.

        If there are fewer, the places left are filled up.
        """
        if len(expressions) > self.count:
            raise InputError(f"a forest of {self.count} expressions has no room for {len(expressions)}")
        self._check_tokens(expressions)
        others = Programs.of([*expressions, *[FILLER] * (self.count - len(expressions))], width=self.width)
        if others.extended and not self.programs.extended:
            raise InputError("a forest that is not extended takes expressions of the paper's tokens only")
        self.programs.nodes.copy_(others.nodes)
        self.programs.sizes.copy_(others.sizes)
        self.programs.uses.copy_(others.uses)

    def set_progress(self, progress: float) -> None:
        """Set the terminal t, the share of the training that is done, in the memory that captured graphs read."""
        self.programs.progress.fill_(progress)

    def dense_targets(self, targets: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Targets as `[B, K]`: class indices become one-hot. Does not synchronise with the device."""
        return dense_targets(targets, self.link, self.outputs, dtype)

    def losses(self, outputs: Tensor, targets: Tensor, weights: Tensor, row_weights: Tensor | None = None) -> Tensor:
        """`[P]`: each expression's loss."""
        return self.gradients(outputs, targets, weights, row_weights)[0]

    def gradients(
        self, outputs: Tensor, targets: Tensor, weights: Tensor, row_weights: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """`[P]` losses, and `[P, B, K]` their gradients by the outputs."""
        losses, gradients = self.of_samples(outputs, targets, weights)
        if row_weights is None:
            scale = mean_scale(self.kind, outputs)
            return losses.sum(1).mul_(scale), gradients.mul_(scale)
        shares = self._shares(outputs, row_weights)
        counted = shares > 0  # not a product alone: a row that does not count may be infinite
        losses = torch.where(counted, losses * shares, 0).sum(1)
        return losses, torch.where(counted.unsqueeze(-1), gradients.mul_(shares.unsqueeze(-1)), 0)

    def gradient_norms(self, outputs: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        """`[P, B]`: the Euclidean norm of each sample's gradient, taken as a batch of its own."""
        _, gradients = self.of_samples(outputs, targets, weights)
        norms: Tensor = torch.linalg.vector_norm(gradients, dim=2)
        return norms.mul_(mean_scale(self.kind, outputs) * outputs.shape[-2])

    def mixed_gradients(
        self, outputs: Tensor, targets: Tensor, tangents: Tensor, weights: Tensor, row_weights: Tensor | None = None
    ) -> Tensor:
        """`[P, N]`: the gradient by the weights of Σ tangents · ∂loss/∂outputs, zero where there is no edge."""
        dense, outputs, tangents, scale = self._along(outputs, targets, tangents, weights, row_weights)
        gradients: Tensor = self._backend_for(outputs).mixed(
            self.programs, weights, outputs, dense, tangents, self.link, softplus=self._softplus
        )
        return gradients.mul_(scale)

    def curvatures(
        self, outputs: Tensor, targets: Tensor, tangents: Tensor, weights: Tensor, row_weights: Tensor | None = None
    ) -> Tensor:
        """`[P, B, K]`: the second derivatives of each loss by the outputs, times the tangents.

        Always by torch operations: only training through several inner steps asks for it, and there the network's own
        second derivatives cost far more.
        """
        dense, outputs, tangents, scale = self._along(outputs, targets, tangents, weights, row_weights)
        found = torch_backend.curvatures(
            self.programs, weights, outputs, dense, tangents, self.link, softplus=self._softplus
        )
        return found.mul_(scale)

    def descended(self, outputs: Tensor, targets: Tensor, weights: Tensor, *, steps: int, lr: float) -> Tensor:
        """`[P, B, K]`: the outputs after `steps` steps of Adam on the loss."""
        dense = self._checked(outputs, targets, weights)
        result: Tensor = self._backend_for(outputs).descended(
            self.programs, weights, outputs, dense, self.link,
            softplus=self._softplus, steps=steps, lr=lr, scale=mean_scale(self.kind, outputs),
        )  # fmt: skip
        return result

    def of_samples(self, outputs: Tensor, targets: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """`[P, B]` losses of the samples, summed over the outputs, and `[P, B, K]` the gradient of their sum."""
        dense = self._checked(outputs, targets, weights, groups_allowed=True)
        found: tuple[Tensor, Tensor] = self._backend_for(outputs).gradients(
            self.programs, weights, outputs, dense, self.link, softplus=self._softplus
        )
        return found

    def _checked(self, outputs: Tensor, targets: Tensor, weights: Tensor, *, groups_allowed: bool = False) -> Tensor:
        """The dense targets, if all arguments fit together: the kernels check nothing."""
        shape = outputs.shape
        if (
            len(shape) not in (2, 3)
            or shape[-1] != self.outputs
            or (len(shape) == 3 and shape[0] != self.count)
            or outputs.dtype not in _DTYPES
        ):
            raise InputError(
                f"outputs must be float32 or float64 of shape [{self.count}, B, {self.outputs}] or [B, {self.outputs}] "
                f"but got {outputs.dtype} of shape {list(shape)}"
            )
        if tuple(weights.shape) != (self.count, self.width) or weights.dtype != outputs.dtype:
            raise InputError(
                f"weights must be {outputs.dtype} of shape {[self.count, self.width]} "
                f"but got {weights.dtype} of shape {list(weights.shape)}"
            )
        if groups_allowed and targets.dim() == 3:
            dense = targets
            if self.count % len(targets) or targets.shape[-1] != self.outputs or targets.dtype != outputs.dtype:
                raise InputError(
                    f"targets of groups must be {outputs.dtype} of shape [G, B, {self.outputs}], where G divides "
                    f"{self.count}, but got {targets.dtype} of shape {list(targets.shape)}"
                )
        else:
            dense = self.dense_targets(targets, outputs.dtype)
        if dense.shape[-2] != shape[-2]:
            raise InputError(f"outputs have {shape[-2]} samples but targets {dense.shape[-2]}")
        for name, tensor in (("outputs", outputs), ("targets", dense), ("weights", weights)):
            if tensor.device != self.programs.device:
                raise InputError(f"{name} must be on {self.programs.device} but got {tensor.device}")
        return dense

    def _shares(self, outputs: Tensor, row_weights: Tensor) -> Tensor:
        """Each row's share of the loss, `[1, B]` for all expressions or `[P, B]`."""
        groups = row_weights if row_weights.dim() == 2 else row_weights.unsqueeze(0)
        if groups.shape[-1] != outputs.shape[-2] or self.count % len(groups) or groups.dtype != outputs.dtype:
            raise InputError(
                f"row weights must be {outputs.dtype} of shape [{outputs.shape[-2]}], or one such row for each group, "
                f"but got {row_weights.dtype} of shape {list(row_weights.shape)}"
            )
        shares = row_shares(self.kind, outputs, groups)
        return shares.repeat_interleave(self.count // len(groups), 0) if len(groups) > 1 else shares

    def _along(
        self, outputs: Tensor, targets: Tensor, tangents: Tensor, weights: Tensor, row_weights: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, float]:
        """Dense targets, outputs, tangents, and the factor that turns derivatives of the sum into those of the loss."""
        dense = self._checked(outputs, targets, weights)
        expected = (self.count, *outputs.shape[-2:])
        if tuple(tangents.shape) != expected or tangents.dtype != outputs.dtype:
            raise InputError(
                f"tangents must be {outputs.dtype} of shape {list(expected)} "
                f"but got {tangents.dtype} of shape {list(tangents.shape)}"
            )
        if row_weights is None:
            return dense, outputs, tangents, mean_scale(self.kind, outputs)
        # Rows do not depend on each other, so the weight of a row can be moved to its tangent. The outputs of rows
        # without weight are replaced by 0, as their derivatives may be infinite.
        shares = self._shares(outputs, row_weights).unsqueeze(-1)
        counted = shares if outputs.dim() == 3 else shares.squeeze(0)
        return dense, torch.where(counted > 0, outputs, 0), tangents * shares, 1.0

    def _check_tokens(self, expressions: Sequence[Expression]) -> None:
        for expression in expressions:
            check_terminals(expression, self.kind)

    def _backend_for(self, outputs: Tensor) -> ModuleType:
        name = self.backend
        if name == "auto":
            device = outputs.device.type
            if device == "cpu":
                name = "numba" if has_numba() else "torch"
            else:
                # The Triton kernels compute in single precision.
                compiled = device == "cuda" and outputs.dtype == torch.float32 and has_triton()
                name = "triton" if compiled else "torch"
        return importlib.import_module(f"evomal.forest.{name}_backend")


def _checked_backend(name: str, device: torch.device) -> str:
    one_of("backend", name, BACKENDS)
    if name == "numba" and device.type != "cpu":
        raise InputError(f"backend 'numba' is for the CPU but the device is {device}")
    if name == "triton" and not has_triton():
        raise InputError("backend 'triton' needs triton, which is not installed here")
    return name
