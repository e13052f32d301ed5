"""Build: turn a labelled source into a gallery file."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path

from crnr_cli.errors import CrnrError
from crnr_cli.gallery.extraction import read_through_cache
from crnr_cli.gallery.file import new_gallery, refuse_other_ending, save_gallery
from crnr_cli.gallery.fit import BuildReport, make_gallery, suit_to_vectors
from crnr_cli.gallery.gallery import FittedGallery
from crnr_cli.gallery.samples import Reading, ReadSamples, read_samples
from crnr_cli.gallery.streaming import can_stream, stream_samples
from crnr_cli.gallery.workers import Here, Workers
from crnr_cli.images.pool import DecoderPool
from crnr_cli.methods import Method, make_method
from crnr_cli.progress import Progress, silent
from crnr_cli.records import dataclass
from crnr_cli.sources.opening import open_examples
from crnr_cli.sources.tables import Features
from crnr_cli.system.files import is_replaceable, replacing
from crnr_cli.wording import Note


@dataclass(frozen=True)
class BuildOptions:
    reading: Reading = field(default_factory=Reading)
    method: str = "crnr"
    parameters: Mapping[str, object] = field(default_factory=dict)
    calibrate: bool = False  # store the calibration that --reject needs
    cache: Path | None = None  # a file of the images' raw values, which is updated


def build(
    names: Sequence[str],
    output: Path,
    options: BuildOptions,
    progress: Progress = silent,
    workers: Workers | None = None,
) -> BuildReport:
    """Read the source, fit the method, and write the gallery."""
    started = time.perf_counter()
    method = make_method(options.method, options.parameters)
    if reason := method.why_unavailable():
        raise CrnrError(reason)
    workers = workers or Here(DecoderPool(options.reading.jobs))
    source = open_examples(names, options.reading, workers.lister)
    refuse_other_ending(output)
    with replacing(output) as file:
        reading = options.reading
        of_cache: list[Note] = []
        if options.cache:
            source, reading, of_cache = read_through_cache(source, reading, options.cache, progress, workers)
        if isinstance(source, Features) and is_replaceable(output) and can_stream(source, reading, method):
            with new_gallery(file) as new:
                read = stream_samples(source, reading, new, progress)
                gallery, of_gallery = _fit(read, method, options, progress)
                new.finish(gallery)
        else:
            read = read_samples(source, reading, progress, workers)
            gallery, of_gallery = _fit(read, method, options, progress)
            save_gallery(gallery, file)
        file_bytes = os.fstat(file.fileno()).st_size
    return BuildReport(
        gallery=gallery,
        file_bytes=file_bytes,
        seconds=time.perf_counter() - started,
        left_out=read.left_out,
        notes=of_cache + read.notes + of_gallery,
    )


def _fit(
    read: ReadSamples, method: Method, options: BuildOptions, progress: Progress
) -> tuple[FittedGallery, list[Note]]:
    progress("fitting", 0, 1)
    gallery, notes = make_gallery(read, suit_to_vectors(method, read.recipe, options.parameters), progress)
    progress("fitting", 1, 1)
    if options.calibrate:
        gallery = gallery.calibrate(options.reading.n_jobs, progress)
    return gallery, notes
