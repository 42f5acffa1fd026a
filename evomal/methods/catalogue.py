"""Methods by name."""

from evomal.methods.baseline import BASELINE
from evomal.methods.evolution import EVOMAL, GP_LFL
from evomal.methods.method import Method
from evomal.methods.ml3 import ML3, ML3_SINGLE
from evomal.methods.random_trees import RANDOM
from evomal.methods.taylorglo import TAYLORGLO
from evomal.suggestions import unknown_name

METHODS: dict[str, Method] = {
    method.name: method for method in (EVOMAL, GP_LFL, TAYLORGLO, ML3, ML3_SINGLE, RANDOM, BASELINE)
}


def method_named(name: str) -> Method:
    """The method of that name, or an error with the nearest one."""
    if name not in METHODS:
        raise unknown_name("method", name, METHODS)
    return METHODS[name]
