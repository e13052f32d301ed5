"""Where the project's own files are."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).parent.parent
DATA = TESTS / "data"
ROOT = TESTS.parent
DOCS = ROOT / "docs"
SAMPLE_DATA = ROOT / "sample_data"
