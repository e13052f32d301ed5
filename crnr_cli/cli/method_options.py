"""The group of options for a method and its parameters."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import typer

_method_option = partial(typer.Option, rich_help_panel="Method")


@dataclass(frozen=True, kw_only=True)
class MethodOptions:
    """The method and its parameters; those that are None stay at the method's defaults."""

    method: Annotated[
        str,
        _method_option(help="crnr, nrc, crc, nsc, src, croc, procrc, nn, svm or softmax."),
    ] = "crnr"
    lam: Annotated[
        float | None,
        _method_option(
            help="Weight of the class residuals (crnr), the ridge (crc, croc, procrc) or the l1 norm (src).",
            show_default="0.01 for crnr, else 0.001",
        ),
    ] = None
    mu: Annotated[
        float | None,
        _method_option(help="ADMM penalty (crnr, nrc).", show_default="0.1"),
    ] = None
    iterations: Annotated[
        int | None,
        _method_option(
            help="ADMM iterations (crnr, nrc); maximum number of iterations (src).",
            show_default="5; 2000 for src",
        ),
    ] = None
    tol: Annotated[
        float | None,
        _method_option(
            help="Stop early when a query changes by less than this (crnr, nrc); duality gap (src).",
            show_default="0: never; 1e-6 for src",
        ),
    ] = None
    factor: Annotated[
        str | None,
        _method_option(help="dense or low-rank (crnr, nrc).", show_default="the cheaper one"),
    ] = None
    gamma: Annotated[
        float | None,
        _method_option(
            help="How strongly each class is pulled towards all of them (procrc).", show_default="0.001"
        ),
    ] = None
    weight: Annotated[
        float | None,
        _method_option(help="Weight of the collaborative residual (croc).", show_default="0.1"),
    ] = None
    c: Annotated[
        float | None,
        _method_option(
            "--c", help="Inverse regularization strength (svm, softmax).", show_default="1; 100 for softmax"
        ),
    ] = None
    calibrate: Annotated[
        bool,
        _method_option(
            "--calibrate",
            help="Store the calibration for --reject; otherwise every `classify --reject` computes it.",
        ),
    ] = False

    def values(self) -> dict[str, Any]:
        """As fields of `BuildOptions`."""
        other = ("method", "calibrate")
        given = {name: value for name, value in vars(self).items() if name not in other and value is not None}
        return {"method": self.method, "parameters": given, "calibrate": self.calibrate}
