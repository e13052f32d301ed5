"""Open a source: folders, files, lists, and images whose labels are in a table."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from crnr_cli.errors import DataError, OutputError, UsageError
from crnr_cli.images.dates import SOURCES
from crnr_cli.images.regions import MARGIN, image_of
from crnr_cli.sources.base import InputOptions, Source
from crnr_cli.sources.formats import Keys, is_table
from crnr_cli.sources.images import Images
from crnr_cli.sources.walk import Lister, list_images, list_named_images
from crnr_cli.system.names import ON_WINDOWS, normalize_path, quote_word, stat_or_none, to_listed_form
from crnr_cli.system.outputs import refuse_inputs, refuse_inside, refuse_listed
from crnr_cli.wording import format_count, is_or_are, not_one_of, suggest_similar

if TYPE_CHECKING:
    from crnr_cli.sources.boxes import DetectedImages
    from crnr_cli.sources.label_table import LabelOptions, Labels

_SHOWN = 3  # paths
_MOST_WORDS = 5  # of a name with spaces
_SIMILAR = 0.75  # names; a short name is similar to many
_GALLERY = "classify and explain take it with --gallery; build takes the folder of its images"
_OTHER_SOURCE = "name a folder that contains images, or a feature file"
_ROOT = "use --root to give the folder that its paths are relative to"


def apply_label_table(source: Source, options: LabelOptions) -> Source:
    """Return the same listing with the labels of the table; files not in the table have no class."""
    if not isinstance(source, Images):
        raise UsageError(
            f"--labels applies to images, but {next(source.listing())[0]} is a feature file; choose its "
            "labels with --labels-key"
        )
    return _with_labels(source, options.read())


def _list_labelled_images(options: LabelOptions) -> Source:
    """Return the images that a label table names; there must be at least one."""
    labels = options.read()
    source = list_named_images([options.place_of(row) for row in labels.by_place.values()])
    if not source.files:
        raise DataError(f"{labels.table}: has no rows; name a path and a label in each row")
    if all(file.error is not None and file.error.status == "vanished" for file in source.files):
        raise DataError(
            f"{labels.table}: none of its {format_count(len(source), 'file')} exists; "
            f"{_where_looked_for(source.files[0].path)}; {_ROOT}"
        )
    return _with_labels(source, labels)


def _with_labels(source: Images, labels: Labels) -> Source:
    found = [labels.label_of(file.path) for file in source.files]
    if not any(found):
        example = next(iter(labels.by_place), None)
        looked_for = f"; {_where_looked_for(example)}" if example else ""
        raise DataError(
            f"{labels.table}: has a label for none of the {format_count(len(source), 'file')}{looked_for}; "
            f"{_ROOT}"
        )
    files = [
        file._replace(folders=(label,) if label else ())
        for file, label in zip(source.files, found, strict=True)
    ]
    notes = list(labels.notes)
    if missing := labels.missing({normalize_path(file.path) for file in source.files}):
        shown = ", ".join(missing[:_SHOWN]) + (", ..." if len(missing) > _SHOWN else "")
        count = format_count(len(missing), "file")
        notes.append(f"{count} of {labels.table} {is_or_are(len(missing))} not in the source: {shown}")
    return replace(
        source, files=files, named_folders=[], empty_folders=[], labels_from=labels.table, extra_notes=notes
    )


def _where_looked_for(example: str) -> str:
    hint = ", with backslashes as on Windows; replace them by slashes"
    return f"the first one was looked for at {example}" + (hint if "\\" in example and os.sep == "/" else "")


def open_source(
    names: Sequence[str],
    options: InputOptions,
    *,
    allow_missing: bool = False,
    allow_empty: bool = False,
    lister: Lister | None = None,
) -> Source:
    """List all samples in these files and folders; `-` is a list of files on stdin.

    With `allow_missing`, missing images are listed too, as with a list on stdin, unless nothing else was
    named. A listing without any file is refused, unless `allow_empty`. The `lister` lists the subfolders of
    named folders; None: this process. Without names, list the files of the label table.
    """
    if "" in names:  # as a path, it would be the current folder
        raise UsageError("the name of a source is empty; is a variable of your script not set?")
    names = [found for name in names for found in _expand_pattern(name)]
    paths = [Path(name) for name in names if name != "-"]
    missing = [path for path in paths if _is_missing(path)]
    named_tables = _feature_files_among(paths, len(names))
    if missing and (not allow_missing or len(missing) == len(names) or named_tables):
        raise DataError(f"{missing[0]}: no such file or folder{_suggest_name(str(missing[0]), names)}")
    tables = [path for path in named_tables if os.path.isfile(path)]  # noqa: PTH113
    if tables and len(tables) < len(names):
        _refuse_mixture(tables, names)
    if options.keys != Keys() and not tables:
        raise _keys_error(names)
    for path in paths:
        if os.path.isdir(path):  # noqa: PTH112, which raises if access is denied
            refuse_inside(path)
    try:
        refuse_inputs(tables)  # before they are opened
    except OutputError:
        _refuse_galleries(tables)
        raise
    detected = options.boxes.read() if options.boxes is not None else None
    source: Source
    if options.labels is not None and not names:
        source = _list_labelled_images(options.labels)
    elif detected is not None and not names:
        source = list_named_images(detected.find_places())
    elif tables:
        from crnr_cli.sources.tables import open_tables  # here, because most queries are images

        source = open_tables(tables, options.keys)
    else:
        source = list_images(names, options.nul_separated, lister)
    if options.labels is not None and names and len(source):
        source = apply_label_table(source, options.labels)
    listed = (
        (image_of(path) if "#" in path else path, size, mtime_ns)
        for path, _, size, mtime_ns in source.listing()
    )
    refuse_listed(listed, are_images=source.kind == "pictures")
    if not len(source) and not allow_empty:
        _refuse_empty(names)
    if detected is not None or (options.dates, options.box_margin) != (None, MARGIN):
        return _read_as_asked(source, options, detected)
    return source


def _keys_error(names: Sequence[str]) -> UsageError:
    return UsageError(
        "--features-key, --labels-key and --samples-axis apply to feature files, but "
        f"{names[0] if names else 'the label table'} is not a feature file; leave them out"
    )


def _is_missing(path: Path) -> bool:
    """Return whether a file, or the image of a region, does not exist."""
    image = image_of(str(path)) if "#" in path.name else path
    return stat_or_none(image, follow_links=False) is None


def _refuse_mixture(tables: Sequence[Path], names: Sequence[str]) -> None:
    _refuse_galleries(tables)
    other = next(name for name in names if name == "-" or Path(name) not in tables)
    raise UsageError(
        f"{tables[0]} is a feature file, but {other} is not; give images or feature files, not both"
    )


def _refuse_empty(names: Sequence[str]) -> None:
    if list(names) == ["-"]:
        raise DataError("-: the list of files on stdin is empty")
    if len(names) > 1:
        raise DataError(f"{', '.join(names)}: contain no images or feature files; {_OTHER_SOURCE}")
    raise DataError(f"{names[0]}: contains no images or feature files; {_OTHER_SOURCE}")


def _read_as_asked(source: Source, options: InputOptions, detected: DetectedImages | None) -> Source:
    """Return the regions of the images, if there are boxes, and the images with dates, if they are needed."""
    if detected is not None:
        source = detected.divide(_require_images(source, "--boxes"))
    if options.dates is not None:
        if options.dates not in SOURCES:
            raise UsageError(f"--dates: {not_one_of(options.dates, SOURCES)}")
        source = replace(_require_images(source, options.dates_option), dates=options.dates)
    return source.with_margin(options.box_margin) if isinstance(source, Images) else source


def _require_images(source: Source, option: str) -> Images:
    if not isinstance(source, Images):
        first = next(source.listing())[0]
        raise UsageError(f"{option} applies to images, but {first} is a feature file; leave it out")
    return source


def _suggest_name(missing: str, names: Sequence[str]) -> str:
    """Return the likely reason for a missing source: a name with spaces, or a misspelt name."""
    at = names.index(missing) if missing in names else 0
    for end in range(at + 2, min(at + _MOST_WORDS, len(names)) + 1):
        whole = " ".join(names[at:end])
        if os.path.lexists(whole):
            return f"; put names with spaces in quotes: {quote_word(whole)}"
    folder, name = os.path.split(missing.rstrip("/"))
    if "#" in name:  # a row of a feature file
        return ""
    folders_only = not Path(name).suffix  # so gallery.h5 is not suggested for galery
    try:
        with os.scandir(folder or ".") as entries:
            known = [entry.name for entry in entries if not folders_only or entry.is_dir()]
    except OSError:
        return ""
    return suggest_similar(missing, [os.path.join(folder, each) for each in known], _SIMILAR)  # noqa: PTH118


def _refuse_galleries(tables: Sequence[Path]) -> None:
    """Raise DataError if one of these files, which cannot be used, is a gallery."""
    from crnr_cli.sources.formats.hdf5 import declares_gallery

    for path in tables:
        if path.suffix.lower() in (".h5", ".hdf5") and declares_gallery(path):
            raise DataError(f"{path}: is a gallery, not a source of images or features; {_GALLERY}")


def open_examples(names: Sequence[str], options: InputOptions, lister: Lister | None = None) -> Source:
    """List all examples in these files and folders; several named folders of images are classes."""
    return open_source(names, options, lister=lister).with_named_classes()


def _expand_pattern(name: str) -> list[str]:
    """Return the files that match: Windows shells leave patterns such as *.png to the programs."""
    if ON_WINDOWS and stat_or_none(name, follow_links=False) is None:
        import glob

        if found := sorted(glob.glob(name)):  # noqa: PTH207
            return found
    return [to_listed_form(name)]


def _feature_files_among(paths: list[Path], n_named: int) -> list[Path]:
    """Return the names of feature files. A CSV among images is just a file next to them."""
    tables = [path for path in paths if is_table(path)]
    only_csv = all(path.suffix.lower() == ".csv" for path in tables)
    return [] if only_csv and len(tables) < n_named else tables


def fingerprint(source: Source) -> str:
    """Return the SHA-256 of a listing: the names, order, sizes and mtimes of its files."""
    digest = hashlib.sha256()
    for text in source.listing_texts():
        digest.update(text)
    return digest.hexdigest()
