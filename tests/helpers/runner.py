"""Runs commands in this process."""

from __future__ import annotations

from typer.testing import CliRunner, Result

from helpers.shell import app


class Crnr:
    """`crnr("build", folder)` gives exit code, stdout and stderr."""

    def __call__(self, *arguments: object, stdin: bytes | str | None = None) -> Result:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception  # a bug, with its traceback
        return result
