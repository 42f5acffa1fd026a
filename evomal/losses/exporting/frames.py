"""What surrounds the function `value` in an exported file: imports, protected operators, shapes and reduction.

The texts are written for people who receive such a file; `source` fills in the `{…}`. `bits`, `probabilities` and
`classes` say how `value` is applied to the three forms that a target can take.
"""

from collections.abc import Mapping
from dataclasses import dataclass

ARGUMENTS = {"outputs": "f, y", "log_odds": "d, classes", "log_probabilities": "log_p, y, classes"}
"""The arguments of `value`, by what it applies to."""
MEANINGS = {
    "outputs": "Cost of each output: f is the prediction, y the target.",
    "log_odds": "Cost of a target with log-odds d: log p = logsigmoid(d), log(1 - p) = logsigmoid(-d).",
    "log_probabilities": "Cost of each class: log_p is its log-probability, y its share of the target.",
}


@dataclass(frozen=True)
class Frame:
    """The texts of one language."""

    module: str
    imports: Mapping[str, str]
    """Import statements, by a pattern of the code that needs them."""
    helpers: Mapping[str, str]
    """Functions by name, those that others call first."""
    classification: str
    multilabel: str
    regression: str
    constant: str
    """The list `{numbers}` as an array like `raw`."""
    applications: Mapping[str, "Application"]

    def forward(self, kind: str, applies_to: str, *, has_units: bool) -> str:
        """Returns the code that computes the losses of a batch by `value`."""
        template = {"classification": self.classification, "multilabel": self.multilabel}.get(kind, self.regression)
        application = self.applications[applies_to]
        values = "standardised(f), standardised(y)" if has_units else "f, y"
        return template.format(
            bits=application.bits, probabilities=application.probabilities, classes=application.classes, values=values
        )


@dataclass(frozen=True)
class Application:
    """Expressions over `logits` and the target, class weights included.

    The target is `index` (class indices) or `y` (class probabilities), both with `weight` and `classes`. Of a binary it
    is `ones` and `zeros`: the shares of the two classes, each times the weight of its class.
    """

    bits: str
    probabilities: str
    classes: str


def _shared_helpers(xp: str) -> dict[str, str]:
    """Helpers that differ between the languages only in the name of the module."""
    return {
        "aq": f'''def aq(a, b):
    """Analytic quotient: division that is smooth everywhere."""
    return a / {xp}.sqrt(1 + b * b)''',
        "log": f"""def log(a):
    return {xp}.log({xp}.abs(a) + 1e-7)""",
        "sqrt": f"""def sqrt(a):
    return {xp}.sqrt({xp}.abs(a) + 1e-7)""",
        "expected": f'''def expected(f, ones, zeros):
    """Cost of a target that is 1 and 0 with these shares: linear in the target, as cross-entropy is."""
    return ones * value(f, {xp}.ones_like(f)) + zeros * value(f, {xp}.zeros_like(f))''',
        "of_bits": '''def of_bits(logits, ones, zeros):
    """Cost of a target that is 1 and 0 with these shares: linear in the target, as cross-entropy is."""
    log_p, log_rest = logsigmoid(logits), logsigmoid(-logits)
    as_one = value(log_p, 1, 2) + value(log_rest, 0, 2)
    as_zero = value(log_p, 0, 2) + value(log_rest, 1, 2)
    return ones * as_one + zeros * as_zero''',
    }


TORCH = Frame(
    module='''"""{docstring}
"""

{imports}

{helpers}def value({arguments}):
    """{meaning}"""
{value}


class LearnedLoss(torch.nn.Module):
    """loss(output, target), a drop-in for {stands_for}; computes in float32 or float64."""

    def __init__(self, weight={weight}, ignore_index={ignore_index}, reduction={reduction}):
        super().__init__()
        self.register_buffer("weight", None if weight is None else torch.as_tensor(weight))
        self.ignore_index = ignore_index
        self.reduction = reduction

    def forward(self, output, target):
        with torch.autocast(output.device.type, enabled=False):
{forward}
        losses = torch.where(kept, losses, 0)
        if self.reduction == "none":
            return losses.reshape(shape)
        if self.reduction == "sum":
            return losses.sum()
        return losses.sum() / torch.where(kept, shares, 0).sum()
''',
    imports={
        r"\bmath\.": "import math\n\n",
        r"\btorch\.": "import torch\n",
        r"\blogsigmoid\(": "from torch.nn.functional import logsigmoid\n",
        r"(?<!\.)\bone_hot\(": "from torch.nn.functional import one_hot\n",
    },
    helpers={
        **_shared_helpers("torch"),
        "target_log_odds": '''def target_log_odds(logits, index):
    """log(p / (1 - p)) of the target; the other logits are summed alone, so 1 - p is never formed by subtraction."""
    column = index.unsqueeze(1)
    others = logits.scatter(1, column, -torch.inf).logsumexp(1)
    return logits.gather(1, column).squeeze(1) - others''',
        "log_odds": '''def log_odds(logits):
    """log(p / (1 - p)) of every class; only the most probable one needs care."""
    top = logits.argmax(1)
    is_top = torch.zeros_like(logits, dtype=torch.bool).scatter(1, top.unsqueeze(1), True)
    log_p = logits.log_softmax(1).masked_fill(is_top, -1.0)
    rest = log_p - torch.log1p(-log_p.exp())
    return torch.where(is_top, target_log_odds(logits, top).unsqueeze(1), rest)''',
    },
    classification="""            class_dim = 0 if output.dim() == 1 else 1
            classes = output.shape[class_dim]
            shape = output.movedim(class_dim, -1).shape[:-1]
            logits = output.movedim(class_dim, -1).reshape(-1, classes)
            logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
            weight = logits.new_ones(max(2, classes)) if self.weight is None else self.weight.to(logits)
            if classes == 1:  # binary
                bits = target.reshape(-1, 1)
                kept = (bits != self.ignore_index)[:, 0]
                y = torch.where(kept[:, None], bits, 0).to(logits.dtype)
                ones, zeros = y * weight[1], (1 - y) * weight[0]
                losses = ({bits})[:, 0]
                shares = torch.ones_like(losses) if target.is_floating_point() else (ones + zeros)[:, 0]
            elif target.shape == output.shape:  # class probabilities
                y = target.movedim(class_dim, -1).reshape(-1, classes).to(logits.dtype)
                losses = {probabilities}
                kept, shares = torch.ones_like(losses, dtype=torch.bool), torch.ones_like(losses)
            else:  # class indices
                kept = target.reshape(-1) != self.ignore_index
                index = torch.where(kept, target.reshape(-1), 0).long()
                losses = {classes}
                shares = weight[index]""",
    multilabel="""            shape = output.shape
            label_dim = 0 if output.dim() == 1 else 1
            logits = output.movedim(label_dim, -1)
            logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
            bits = target.movedim(label_dim, -1)
            kept = bits != self.ignore_index
            ones = torch.where(kept, bits, 0).to(logits.dtype)
            zeros = 1 - ones
            losses = {bits}
            if self.weight is not None:
                losses = losses * self.weight.to(logits)
            losses, kept = losses.movedim(-1, label_dim), kept.movedim(-1, label_dim)
            shares = torch.ones_like(losses)""",
    regression="""            shape = output.shape
            if target.shape not in (shape, (*shape, 1), shape[:-1]) or target.numel() != output.numel():
                raise ValueError(f"target must have the shape {{tuple(shape)}} but got {{tuple(target.shape)}}")
            dtype = torch.promote_types(torch.promote_types(output.dtype, target.dtype), torch.float32)
            f, y = output.to(dtype), target.reshape(shape).to(dtype)
            losses = value({values})
            kept, shares = torch.ones_like(losses, dtype=torch.bool), torch.ones_like(losses)""",
    constant="raw.new_tensor({numbers})",
    applications={
        "outputs": Application(
            bits="expected(logits.sigmoid(), ones, zeros)",
            probabilities="expected(logits.softmax(1), y * weight, (y @ weight)[:, None] - y * weight).sum(1)",
            classes="value(logits.softmax(1), one_hot(index, classes).to(logits.dtype)).sum(1) * weight[index]",
        ),
        "log_odds": Application(
            bits="ones * value(logits, 2) + zeros * value(-logits, 2)",
            probabilities="(y * value(log_odds(logits), classes)) @ weight",
            classes="value(target_log_odds(logits, index), classes) * weight[index]",
        ),
        "log_probabilities": Application(
            bits="of_bits(logits, ones, zeros)",
            probabilities="value(logits.log_softmax(1), y, classes) @ weight",
            classes="value(logits.log_softmax(1), one_hot(index, classes).to(logits.dtype), classes) @ weight",
        ),
    },
)

JAX = Frame(
    module='''"""{docstring}
"""

{imports}

{helpers}def value({arguments}):
    """{meaning}"""
{value}


def loss(output, target, weight={weight}, ignore_index={ignore_index}, reduction={reduction}):
    """The loss of a batch: {stands_for} in shapes, class weights and reduction."""
{forward}
    losses = jnp.where(kept, losses, 0)
    if reduction == "none":
        return losses.reshape(shape)
    if reduction == "sum":
        return losses.sum()
    return losses.sum() / jnp.where(kept, shares, 0).sum()
''',
    imports={
        r"\bmath\.": "import math\n\n",
        r"\bjax\.": "import jax\n",
        r"\bjnp\.": "import jax.numpy as jnp\n",
        r"\blogsigmoid\(": "from jax.nn import log_sigmoid as logsigmoid\n",
    },
    helpers={
        **_shared_helpers("jnp"),
        "target_log_odds": '''def target_log_odds(logits, index):
    """log(p / (1 - p)) of the target; the other logits are summed alone, so 1 - p is never formed by subtraction."""
    is_target = jax.nn.one_hot(index, logits.shape[1], dtype=bool)
    others = jax.nn.logsumexp(jnp.where(is_target, -jnp.inf, logits), axis=1)
    return jnp.take_along_axis(logits, index[:, None], 1)[:, 0] - others''',
        "log_odds": '''def log_odds(logits):
    """log(p / (1 - p)) of every class; only the most probable one needs care."""
    top = logits.argmax(1)
    is_top = jax.nn.one_hot(top, logits.shape[1], dtype=bool)
    log_p = jnp.where(is_top, -1.0, jax.nn.log_softmax(logits))
    rest = log_p - jnp.log1p(-jnp.exp(log_p))
    return jnp.where(is_top, target_log_odds(logits, top)[:, None], rest)''',
    },
    classification="""    class_dim = 0 if output.ndim == 1 else 1
    classes = output.shape[class_dim]
    shape = jnp.moveaxis(output, class_dim, -1).shape[:-1]
    logits = jnp.moveaxis(output, class_dim, -1).reshape(-1, classes)
    logits = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
    weight = jnp.ones(max(2, classes), logits.dtype) if weight is None else jnp.asarray(weight, logits.dtype)
    if classes == 1:  # binary
        bits = target.reshape(-1, 1)
        kept = (bits != ignore_index)[:, 0]
        y = jnp.where(kept[:, None], bits, 0).astype(logits.dtype)
        ones, zeros = y * weight[1], (1 - y) * weight[0]
        losses = ({bits})[:, 0]
        shares = jnp.ones_like(losses) if jnp.issubdtype(target.dtype, jnp.floating) else (ones + zeros)[:, 0]
    elif target.shape == output.shape:  # class probabilities
        y = jnp.moveaxis(target, class_dim, -1).reshape(-1, classes).astype(logits.dtype)
        losses = {probabilities}
        kept, shares = jnp.ones_like(losses, dtype=bool), jnp.ones_like(losses)
    else:  # class indices
        kept = target.reshape(-1) != ignore_index
        index = jnp.where(kept, target.reshape(-1), 0)
        losses = {classes}
        shares = weight[index]""",
    multilabel="""    shape = output.shape
    label_dim = 0 if output.ndim == 1 else 1
    logits = jnp.moveaxis(output, label_dim, -1)
    logits = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
    bits = jnp.moveaxis(target, label_dim, -1)
    kept = bits != ignore_index
    ones = jnp.where(kept, bits, 0).astype(logits.dtype)
    zeros = 1 - ones
    losses = {bits}
    if weight is not None:
        losses = losses * jnp.asarray(weight, logits.dtype)
    losses, kept = jnp.moveaxis(losses, -1, label_dim), jnp.moveaxis(kept, -1, label_dim)
    shares = jnp.ones_like(losses)""",
    regression="""    shape = output.shape
    if target.shape not in (shape, (*shape, 1), shape[:-1]) or target.size != output.size:
        raise ValueError(f"target must have the shape {{shape}} but got {{target.shape}}")
    dtype = jnp.promote_types(jnp.promote_types(output.dtype, target.dtype), jnp.float32)
    f, y = output.astype(dtype), target.reshape(shape).astype(dtype)
    losses = value({values})
    kept, shares = jnp.ones_like(losses, dtype=bool), jnp.ones_like(losses)""",
    constant="jnp.asarray({numbers}, raw.dtype)",
    applications={
        "outputs": Application(
            bits="expected(jax.nn.sigmoid(logits), ones, zeros)",
            probabilities="expected(jax.nn.softmax(logits), y * weight, (y @ weight)[:, None] - y * weight).sum(1)",
            classes="value(jax.nn.softmax(logits), jax.nn.one_hot(index, classes)).sum(1) * weight[index]",
        ),
        "log_odds": Application(
            bits="ones * value(logits, 2) + zeros * value(-logits, 2)",
            probabilities="(y * value(log_odds(logits), classes)) @ weight",
            classes="value(target_log_odds(logits, index), classes) * weight[index]",
        ),
        "log_probabilities": Application(
            bits="of_bits(logits, ones, zeros)",
            probabilities="value(jax.nn.log_softmax(logits), y, classes) @ weight",
            classes="value(jax.nn.log_softmax(logits), jax.nn.one_hot(index, classes), classes) @ weight",
        ),
    },
)
