"""What surrounds the function `value` in an exported file: imports, protected operators, shapes and reduction.

The texts are written for people who receive such a file. They are the same for torch and JAX but for the words that a
`Frame` puts in place of each `$word`; `{bits}`, `{probabilities}` and `{classes}` stand for the application of `value`
to the three forms that a target can take.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from string import Template
from textwrap import indent

from evomal.losses.loss import SourceCode

ARGUMENTS = {
    "outputs": "f, y",
    "terminals": "inputs, y",
    "log_odds": "d, classes",
    "log_probabilities": "log_p, y, classes",
    "distribution": "log_p",
}
"""The arguments of `value`, by what it applies to."""
MEANINGS = {
    "outputs": "Cost of each output: f is the prediction, y the target.",
    "terminals": "Cost of each output: y is its target, the inputs are what the formula has besides.",
    "log_odds": "Cost of a target with log-odds d: log p = logsigmoid(d), log(1 - p) = logsigmoid(-d).",
    "log_probabilities": "Cost of each class: log_p is its log-probability, y its share of the target.",
    "distribution": "Cost of each class as the target: log_p are the log-probabilities of all classes.",
}
_MODULE = '''"""{docstring}
"""

{imports}

{helpers}def value({arguments}):
    """{meaning}"""
{value}


'''
_HELPERS = {
    "aq": '''def aq(a, b):
    """Analytic quotient: division that is smooth everywhere."""
    return a / $xp.sqrt(1 + b * b)''',
    "log": """def log(a):
    return $xp.log($xp.abs(a) + 1e-7)""",
    "sqrt": """def sqrt(a):
    return $xp.sqrt($xp.abs(a) + 1e-7)""",
    "exp": """def exp(a):
    return $xp.exp($xp.clip(a, None, 40.0))""",
    "power": '''def power(a, b):
    """|a| to the power of b, finite everywhere."""
    return exp(b * $xp.log($xp.clip($xp.abs(a), 1e-7, None)))''',
    "expectation": '''def expectation(inputs, ones, zeros):
    """Cost of a target that is 1 and 0 with these shares: linear in the target, as cross-entropy is."""
    f = inputs[0]
    return ones * value(inputs, $xp.ones_like(f)) + zeros * value(inputs, $xp.zeros_like(f))''',
    "expected": '''def expected(f, ones, zeros):
    """Cost of a target that is 1 and 0 with these shares: linear in the target, as cross-entropy is."""
    return ones * value(f, $xp.ones_like(f)) + zeros * value(f, $xp.zeros_like(f))''',
    "of_bits": '''def of_bits(logits, ones, zeros):
    """Cost of a target that is 1 and 0 with these shares: linear in the target, as cross-entropy is."""
    log_p, log_rest = logsigmoid(logits), logsigmoid(-logits)
    as_one = value(log_p, 1, 2) + value(log_rest, 0, 2)
    as_zero = value(log_p, 0, 2) + value(log_rest, 1, 2)
    return ones * as_one + zeros * as_zero''',
    "of_two_classes": '''def of_two_classes(logits, ones, zeros):
    """Cost of a target that is 1 and 0 with these shares: linear in the target, as cross-entropy is."""
    costs = value($xp.stack((logsigmoid(-logits), logsigmoid(logits)), -1))
    return ones * costs[..., 1] + zeros * costs[..., 0]''',
    "of_class": '''def of_class(logits, index):
    """Cost of the class that is the target of each sample."""
    is_target = index[:, None] == $columns
    return $xp.where(is_target, value($log_softmax), 0).sum(1)''',
    "target_log_odds": '''def target_log_odds(logits, index):
    """log(p / (1 - p)) of the target; the other logits are summed alone, so 1 - p is never formed by subtraction."""
    is_target = index[:, None] == $columns
    others = $logsumexp($xp.where(is_target, -$xp.inf, logits), 1)
    return $xp.where(is_target, logits, 0).sum(1) - others''',
    "log_odds": '''def log_odds(logits):
    """log(p / (1 - p)) of every class; only the most probable one needs care."""
    top = logits.argmax(1)
    is_top = top[:, None] == $columns
    log_p = $xp.where(is_top, -1.0, $log_softmax)
    rest = log_p - $xp.log1p(-$xp.exp(log_p))
    return $xp.where(is_top, target_log_odds(logits, top)[:, None], rest)''',
}
_FORWARD = {
    "classification": """class_dim = 0 if output.ndim == 1 else 1
classes = output.shape[class_dim]
shape = $xp.moveaxis(output, class_dim, -1).shape[:-1]
logits = $xp.moveaxis(output, class_dim, -1).reshape(-1, classes)
logits = logits.$cast($xp.promote_types(logits.dtype, $xp.float32))
weight = $ones if ${own}weight is None else $weight
if classes == 1:  # binary
    bits = target.reshape(-1, 1)
    kept = (bits != ${own}ignore_index)[:, 0]
    y = $xp.where(kept[:, None], bits, 0).$cast(logits.dtype)
    ones, zeros = y * weight[1], (1 - y) * weight[0]
    losses = ({bits})[:, 0]
    shares = $xp.ones_like(losses) if $is_floating else (ones + zeros)[:, 0]
elif target.shape == output.shape:  # class probabilities
    y = $xp.moveaxis(target, class_dim, -1).reshape(-1, classes).$cast(logits.dtype)
    losses = {probabilities}
    kept, shares = $xp.ones_like(losses, dtype=$bool), $xp.ones_like(losses)
else:  # class indices
    kept = target.reshape(-1) != ${own}ignore_index
    index = $xp.where(kept, target.reshape(-1), 0)$long
    losses = {classes}
    shares = weight[index]
""",
    "multilabel": """shape = output.shape
label_dim = 0 if output.ndim == 1 else 1
logits = $xp.moveaxis(output, label_dim, -1)
logits = logits.$cast($xp.promote_types(logits.dtype, $xp.float32))
bits = $xp.moveaxis(target, label_dim, -1)
kept = bits != ${own}ignore_index
ones = $xp.where(kept, bits, 0).$cast(logits.dtype)
zeros = 1 - ones
losses = {bits}
if ${own}weight is not None:
    losses = losses * $weight
losses, kept = $xp.moveaxis(losses, -1, label_dim), $xp.moveaxis(kept, -1, label_dim)
shares = $xp.ones_like(losses)
""",
    "regression": """shape = output.shape
if target.shape not in (shape, (*shape, 1), shape[:-1]) or $size(target) != $size(output):
    raise ValueError(f"target must have the shape {{tuple(shape)}} but got {{tuple(target.shape)}}")
dtype = $xp.promote_types($xp.promote_types(output.dtype, target.dtype), $xp.float32)
f, y = output.$cast(dtype), target.reshape(shape).$cast(dtype)
losses = value({values})
kept, shares = $xp.ones_like(losses, dtype=$bool), $xp.ones_like(losses)
""",
}
_REDUCTION = """losses = $xp.where(kept, losses, 0)
if ${own}reduction == "none":
    return losses.reshape(shape)
if ${own}reduction == "sum":
    return losses.sum()
return losses.sum() / $xp.where(kept, shares, 0).sum()
"""
# How `value` is applied to `logits` and the target, class weights included. The target is `index` (class indices) or
# `y` (class probabilities); of a binary it is `ones` and `zeros`: the shares of the two classes times their weights.
_APPLICATIONS = {
    "outputs": {
        "bits": "expected($sigmoid, ones, zeros)",
        "probabilities": "expected($softmax, y * weight, (y @ weight)[:, None] - y * weight).sum(1)",
        "classes": "value($softmax, $one_hot).sum(1) * weight[index]",
    },
    "terminals": {
        "bits": "expectation(label_terminals(logits$progress), ones, zeros)",
        "probabilities": """expectation(
        class_terminals(logits$progress), y * weight, (y @ weight)[:, None] - y * weight
    ).sum(1)""",
        "classes": """value(
        class_terminals(logits$progress), $one_hot
    ).sum(1) * weight[index]""",
    },
    "log_odds": {
        "bits": "ones * value(logits, 2) + zeros * value(-logits, 2)",
        "probabilities": "(y * value(log_odds(logits), classes)) @ weight",
        "classes": "value(target_log_odds(logits, index), classes) * weight[index]",
    },
    "log_probabilities": {
        "bits": "of_bits(logits, ones, zeros)",
        "probabilities": "value($log_softmax, y, classes) @ weight",
        "classes": "value($log_softmax, $one_hot, classes) @ weight",
    },
    "distribution": {
        "bits": "of_two_classes(logits, ones, zeros)",
        "probabilities": "(y * value($log_softmax)) @ weight",
        "classes": "of_class(logits, index) * weight[index]",
    },
}
# The terminals of expressions, from `logits` and from `priors`, the shares of the classes or labels.
_CLASS_TERMINALS = {
    "f": ["f = $softmax"],
    "logp": ["logp = $log_softmax"],
    "blogp": ["adjusted = logits + $xp.log(priors)", "blogp = adjusted - $logsumexp(adjusted, 1)[:, None]"],
    "margin": [
        "top = logits.argmax(1)[:, None]",
        "is_top = top == $columns",
        "second = $xp.where(is_top, -$xp.inf, logits).argmax(1)[:, None]",
        "margin = logits - $take(logits, $xp.where(is_top, second, top), 1)",
    ],
    "prior": ["prior = $xp.zeros_like(logits) + priors"],
    "t": ["t = $xp.full_like(logits, progress)"],
}
_LABEL_TERMINALS = _CLASS_TERMINALS | {
    "f": ["f = $sigmoid"],
    "logp": ["logp = logsigmoid(logits)"],
    "blogp": ["blogp = logsigmoid(logits + $xp.log(priors) - $xp.log1p(-priors))"],
    "margin": ["margin = logits"],
}


@dataclass(frozen=True)
class Frame:
    """What differs between the languages."""

    opening: str
    """The beginning of what the file offers, up to the code that computes the losses of a batch."""
    indent: str
    imports: Mapping[str, str]
    """Import statements, by a pattern of the code that needs them."""
    words: Mapping[str, str]

    @property
    def module(self) -> str:
        """The text of a file, with a `{place}` for everything that depends on the loss."""
        return f"{_MODULE}{self.opening}{{forward}}"

    @property
    def helpers(self) -> dict[str, str]:
        """Functions by name, each before those that call it."""
        return {name: self._translated(text) for name, text in _HELPERS.items()}

    def constant(self, numbers: list[float]) -> str:
        """Returns the numbers as an array like `raw`."""
        return self._translated("$constant").format(numbers=numbers)

    def forward(self, kind: str, source: SourceCode, *, has_units: bool) -> str:
        """Returns the code that computes the loss of a batch by `value`."""
        words = {"progress": ", ${own}progress" if "t" in source.extras else ""}
        applications = _APPLICATIONS[source.applies_to].items()
        places = {name: self._translated(Template(text).safe_substitute(words)) for name, text in applications}
        f, y = ("standardised(f)", "standardised(y)") if has_units else ("f", "y")
        # The progress of the training is the only other terminal of regression.
        moving = f"({f}, {self._translated('$xp.full_like(f, ${own}progress)')})"
        places["values"] = f"{moving if source.extras else f}, {y}"
        code = self._translated(_FORWARD[kind]).format(**places) + self._translated(_REDUCTION)
        return indent(code, self.indent)

    def terminals(self, kind: str, source: SourceCode) -> list[str]:
        """Returns the functions that compute the inputs of `value` from logits."""
        if not source.extras or kind == "regression":
            return []
        tables = {"class_terminals": _CLASS_TERMINALS, "label_terminals": _LABEL_TERMINALS}
        if kind == "multilabel":
            del tables["class_terminals"]
        found = []
        for name, table in tables.items():
            lines = [f"def {name}(logits{', progress' if 't' in source.extras else ''}):"]
            if source.priors is not None and {"prior", "blogp"} & set(source.extras):
                # A single logit decides between two classes.
                is_single = kind == "classification" and table is _LABEL_TERMINALS
                shares = self.constant(list(source.priors[1:2] if is_single else source.priors))
                lines.append(f"    priors = {shares.replace('raw', 'logits')}")
            for token in ("f", *source.extras):
                lines += [f"    {self._translated(line)}" for line in table[token]]
            found.append("\n".join([*lines, f"    return {', '.join(('f', *source.extras))}"]))
        return found

    def _translated(self, text: str) -> str:
        return Template(text).substitute(self.words)


TORCH = Frame(
    opening='''class LearnedLoss(torch.nn.Module):
    """loss(output, target), a drop-in for {stands_for}; computes in float32 or float64."""

    def __init__(self, weight={weight}, ignore_index={ignore_index}, reduction={reduction}):
        super().__init__()
        self.register_buffer("weight", None if weight is None else torch.as_tensor(weight))
        self.ignore_index = ignore_index
        self.reduction = reduction
{progress_line}
    def forward(self, output, target):
        with torch.autocast(output.device.type, enabled=False):
''',
    indent=" " * 12,
    imports={
        r"\bmath\.": "import math\n\n",
        r"\btorch\.": "import torch\n",
        r"\blogsigmoid\(": "from torch.nn.functional import logsigmoid\n",
        r"(?<!\.)\bone_hot\(": "from torch.nn.functional import one_hot\n",
    },
    words={
        "xp": "torch",
        "own": "self.",
        "cast": "to",
        "bool": "torch.bool",
        "long": ".long()",
        "size": "torch.numel",
        "is_floating": "target.is_floating_point()",
        "ones": "logits.new_ones(max(2, classes))",
        "weight": "self.weight.to(logits)",
        "constant": "raw.new_tensor({numbers})",
        "columns": "torch.arange(logits.shape[1], device=logits.device)",
        "logsumexp": "torch.logsumexp",
        "take": "torch.take_along_dim",
        "sigmoid": "logits.sigmoid()",
        "softmax": "logits.softmax(1)",
        "log_softmax": "logits.log_softmax(1)",
        "one_hot": "one_hot(index, classes).to(logits.dtype)",
    },
)

JAX = Frame(
    opening='''def loss(output, target, weight={weight}, ignore_index={ignore_index}, reduction={reduction}{progress}):
    """The loss of a batch: {stands_for} in shapes, class weights and reduction."""
''',
    indent=" " * 4,
    imports={
        r"\bmath\.": "import math\n\n",
        r"\bjax\.": "import jax\n",
        r"\bjnp\.": "import jax.numpy as jnp\n",
        r"\blogsigmoid\(": "from jax.nn import log_sigmoid as logsigmoid\n",
    },
    words={
        "xp": "jnp",
        "own": "",
        "cast": "astype",
        "bool": "bool",
        "long": "",
        "size": "jnp.size",
        "is_floating": "jnp.issubdtype(target.dtype, jnp.floating)",
        "ones": "jnp.ones(max(2, classes), logits.dtype)",
        "weight": "jnp.asarray(weight, logits.dtype)",
        "constant": "jnp.asarray({numbers}, raw.dtype)",
        "columns": "jnp.arange(logits.shape[1])",
        "logsumexp": "jax.nn.logsumexp",
        "take": "jnp.take_along_axis",
        "sigmoid": "jax.nn.sigmoid(logits)",
        "softmax": "jax.nn.softmax(logits)",
        "log_softmax": "jax.nn.log_softmax(logits)",
        "one_hot": "jax.nn.one_hot(index, classes)",
    },
)
