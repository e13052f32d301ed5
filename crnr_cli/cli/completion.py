"""Words that a shell completes besides options and choices: names in the gallery on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import typer


def complete_classes(context: typer.Context, incomplete: str) -> list[str]:
    return _complete_names(context, "classes", incomplete)


def complete_samples(context: typer.Context, incomplete: str) -> list[str]:
    return _complete_names(context, "samples", incomplete)


def complete_settings(incomplete: str) -> list[str]:
    """Return METHOD.PARAM= for the method parameters that begin with this."""
    from crnr_cli.methods import METHODS, default_parameters

    names = [f"{name}.{field}=" for name in METHODS for field in default_parameters(name)]
    return [name for name in names if name.startswith(incomplete)]


def complete_models(incomplete: str) -> list[str]:
    """Return the names of known models that begin with this."""
    from crnr_cli.models.catalog import MODELS

    return [name for name in MODELS if name.startswith(incomplete)]


def _complete_names(context: typer.Context, of: Literal["classes", "samples"], incomplete: str) -> list[str]:
    from crnr_cli.gallery.file import stored_names

    # As long as the value of the last option is missing, Typer leaves the arguments unassigned.
    arguments = [context.params.get("gallery"), *(context.params.get("arguments") or []), *context.args]
    named = context.params.get("option") or next(filter(None, arguments), None)
    if named is None or not Path(named).is_file():  # a pipe would keep the shell waiting
        return []
    names = stored_names(Path(named), of)
    return [name for name in names if name.startswith(incomplete) and name.isprintable()]
