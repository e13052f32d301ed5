"""Build: a labelled source becomes a gallery file."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from crnr_cli.errors import UsageError
from crnr_cli.gallery.cache import cached
from crnr_cli.gallery.file import save_gallery
from crnr_cli.gallery.fit import BuildReport, make_gallery
from crnr_cli.gallery.notes import Note
from crnr_cli.gallery.samples import Reading, read_samples
from crnr_cli.methods import make_method
from crnr_cli.progress import Progress, silent
from crnr_cli.sources.listing import open_source
from crnr_cli.system.files import replacing


@dataclass(frozen=True)
class BuildOptions:
    reading: Reading = field(default_factory=Reading)
    method: str = "crnr"
    parameters: Mapping[str, object] = field(default_factory=dict)
    calibrate: bool = False  # store the calibration that --reject needs
    cache: Path | None = None  # a file of the pictures' raw values, which is brought up to date


def build(
    names: Sequence[str], output: Path, options: BuildOptions, progress: Progress = silent
) -> BuildReport:
    """Read the source, fit the method, and write the gallery."""
    started = time.perf_counter()
    method = make_method(options.method, options.parameters)
    if reason := method.unavailable():
        raise UsageError(reason)
    source = open_source(names, options.reading)
    with replacing(output) as file:
        reading = options.reading
        of_cache: list[Note] = []
        if options.cache:
            source, reading, of_cache = cached(source, reading, options.cache, progress)
        labelled = read_samples(source, reading, progress)
        progress("fitting", 0, 1)
        gallery = make_gallery(labelled, method)
        progress("fitting", 1, 1)
        if options.calibrate:
            gallery = gallery.calibrated(options.reading.n_jobs, progress)
        save_gallery(gallery, file)
        file_bytes = os.fstat(file.fileno()).st_size
    return BuildReport(
        gallery=gallery,
        file_bytes=file_bytes,
        seconds=time.perf_counter() - started,
        left_out=labelled.left_out,
        notes=of_cache + labelled.notes,
    )
