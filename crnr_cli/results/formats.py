"""Read predictions from a file of any format, which is recognised by its first bytes."""

from __future__ import annotations

import io
from pathlib import Path
from typing import BinaryIO, cast

from crnr_cli.errors import DataError
from crnr_cli.results.decision import Prediction
from crnr_cli.results.json_lines import parse_json_lines
from crnr_cli.results.table import parse_predictions
from crnr_cli.system.csv_file import as_text
from crnr_cli.system.parquet import MAGIC


def read_answers(path: Path) -> list[Prediction]:
    """The rows of a file that classify wrote in any format."""
    try:
        with path.open("rb") as file:
            if file.peek(len(MAGIC))[: len(MAGIC)] == MAGIC:
                from crnr_cli.results.parquet_rows import read_parquet_rows

                return read_parquet_rows(path)
            return parse_stream(file, str(path))
    except OSError as e:
        raise DataError(f"{path}: cannot read it ({e.strerror})") from e


def parse_stream(file: BinaryIO, name: str) -> list[Prediction]:
    """The rows of a CSV or of JSON Lines, whose first line begins with a brace."""
    buffered = file if isinstance(file, io.BufferedReader) else io.BufferedReader(cast(io.RawIOBase, file))
    text = as_text(buffered, name)
    try:
        if buffered.peek(1)[:1] == b"{":
            return parse_json_lines(text, name)
        return parse_predictions(text, name)
    finally:
        text.detach()  # so that the stream is not closed
        if buffered is not file:
            buffered.detach()
