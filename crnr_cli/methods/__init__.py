"""The registry of methods by name. To add a method, write a class, import it here, and add it to METHODS."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from crnr_cli.errors import UsageError
from crnr_cli.methods.base import (
    ALL_SAMPLES,
    CodingMethod,
    Method,
    Samples,
    Split,
    State,
    batch_size,
    fit_method,
)
from crnr_cli.methods.by_neighbors import LocalMethod, Neighbors, check_search
from crnr_cli.methods.nearest import Nn
from crnr_cli.methods.nonnegative import Crnr, Nrc
from crnr_cli.methods.ridge import Crc, Croc, Nsc, Procrc
from crnr_cli.methods.sparse import Src
from crnr_cli.methods.trained import Softmax, Svm
from crnr_cli.wording import not_one_of

__all__ = [
    "METHODS",
    "NEWEST_VERSION",
    "CodingMethod",
    "Method",
    "Neighbors",
    "Samples",
    "Split",
    "State",
    "batch_size",
    "default_parameters",
    "fit_method",
    "make_method",
    "parse_parameter",
]

# The options of parameters that are not named like them.
_OPTIONS = {"weight": "--crc-weight"}

METHODS: dict[str, type[Method]] = {
    method.name: method
    for method in (
        Crnr,
        Nrc,
        Crc,
        Nsc,
        Src,
        Croc,
        Procrc,
        Nn,
        Svm,
        Softmax,
    )
}


# The newest version of the gallery format that a method needs.
NEWEST_VERSION = max(Neighbors.since_version, *(method.since_version for method in METHODS.values()))


def make_method(name: str, parameters: Mapping[str, object]) -> Method:
    """Return the method of this name with these parameters, the rest at their defaults.

    `neighbors` and `index` are parameters of the `Neighbors` that wrap the method.
    """
    if name not in METHODS:
        raise UsageError(f"method: {not_one_of(name, METHODS)}")
    for parameter in parameters:
        _refuse_unknown(name, parameter)
    kind = METHODS[name]
    if not issubclass(kind, LocalMethod):
        return kind(**parameters)
    search: dict[str, Any] = {key: parameters.get(key, default) for key, default in ALL_SAMPLES.items()}
    check_search(name, **search)
    method = kind(**{key: value for key, value in parameters.items() if key not in search})
    return Neighbors(method=method, **search) if search["neighbors"] else method


def default_parameters(name: str) -> dict[str, Any]:
    """Return the parameters of a method by name, as they are shown, with their defaults."""
    return METHODS[name]().parameters


def parse_parameter(name: str, parameter: str, text: str) -> object:
    """Return the value of a parameter from text, in the type of its default."""
    known = default_parameters(name)
    if parameter not in known:
        has = f"its parameters are {', '.join(known)}" if known else "it has none"
        raise UsageError(f"--set {name}.{parameter}: method {name} has no parameter {parameter}; {has}")
    kind = type(default_parameters(name)[parameter])
    try:
        return kind(text)
    except ValueError as e:
        what = "a whole number" if kind is int else "a number"
        raise UsageError(f"--set {name}.{parameter}: {text!r} is not {what}") from e


def _refuse_unknown(name: str, parameter: str) -> None:
    """Raise UsageError if the method has no such parameter, and name the methods that do."""
    known = default_parameters(name)
    if parameter in known:
        return
    owners = [other for other in METHODS if parameter in default_parameters(other)]
    if owners:
        option = _OPTIONS.get(parameter, f"--{parameter}")
        raise UsageError(f"{option} does not apply to --method {name}; it belongs to {', '.join(owners)}")
    has = f"its parameters are {', '.join(known)}" if known else "it has none"
    raise UsageError(f"method {name} has no parameter {parameter}; {has}")
