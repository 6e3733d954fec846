"""Counts the work in a traced function, loops multiplied out.

XLA's own count takes the body of a loop once, however often it runs; this one walks the trace and multiplies.
It counts what is written, before XLA drops what is unused: an upper bound. A loop whose length hangs on data
(`while`) is counted once.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
from jax.extend import core

Count = Callable[[Any, set[core.Var]], int | None]


def count_flops(function: Callable, *args: Any) -> int:
    """Returns the operations (a multiply and an add are two) of products and convolutions.

    A convolution's zero padding counts as if it were there.

    Args:
        function: what to trace.
        *args: its arguments, as arrays or as shapes.
    """
    return count(_products, function, *args)


def count(of_equation: Count, function: Callable, *args: Any) -> int:
    """Sums what `of_equation` says of each equation in the trace of `function(*args)`.

    Args:
        of_equation: returns the number that an equation counts for, or None to look inside of it; it is
            passed the equation and the variables that anything beside it reads.
        function: what to trace.
        *args: its arguments, as arrays or as shapes.
    """
    return _walk(jax.make_jaxpr(function)(*args).jaxpr, of_equation)


def _walk(jaxpr: core.Jaxpr, of_equation: Count) -> int:
    total = 0
    variables = [*jaxpr.outvars, *(variable for equation in jaxpr.eqns for variable in equation.invars)]
    read = {variable for variable in variables if isinstance(variable, core.Var)}
    for equation in jaxpr.eqns:
        own = of_equation(equation, read)
        if own is None:
            inner = [_walk(part, of_equation) for part in _parts(equation)]
            name = equation.primitive.name
            times = equation.params["length"] if name == "scan" else 1
            own = max(inner) if name == "cond" else times * sum(inner)
        total += own
    return total


def _products(equation: Any, read: set[core.Var]) -> int | None:
    del read
    name, params = equation.primitive.name, equation.params
    out = math.prod(equation.outvars[0].aval.shape) if equation.outvars else 0
    if name == "dot_general":
        (contracted, _), _ = params["dimension_numbers"]
        return 2 * out * math.prod(equation.invars[0].aval.shape[axis] for axis in contracted)
    if name == "conv_general_dilated":
        kernel = equation.invars[1].aval.shape
        return 2 * out * math.prod(kernel) // kernel[params["dimension_numbers"].rhs_spec[0]]
    return None


def _parts(equation: Any) -> Iterator[core.Jaxpr]:
    """Yields the jaxprs inside an equation: the bodies of loops, branches and calls."""
    for value in equation.params.values():
        for item in value if isinstance(value, tuple | list) else (value,):
            jaxpr = getattr(item, "jaxpr", item)
            if isinstance(jaxpr, core.Jaxpr):
                yield jaxpr
