"""Files that a person reviewed, to be added to a gallery with the labels that they were given."""

from __future__ import annotations

from crnr_cli.errors import DataError, SampleError
from crnr_cli.gallery.columns import SampleTable
from crnr_cli.gallery.entries import contents_of, names_by_content
from crnr_cli.results.corrections import Corrections
from crnr_cli.sources.folders import Pictures
from crnr_cli.sources.readers import is_table
from crnr_cli.sources.walk import named_pictures
from crnr_cli.system.names import class_key
from crnr_cli.system.outputs import refuse_mentioned
from crnr_cli.wording import Note, are, counted, have

_NANOSECONDS = 10**9
_ROUNDING = 1.0  # seconds: some file systems round the times of files up


def reviewed_pictures(corrections: Corrections) -> tuple[Pictures, list[Note]]:
    """The files that were accepted or corrected, and what to say about the others.

    A file that is newer than its review may be another picture, and is not read.
    """
    wanted = [one for one in corrections if not one.is_outsider]
    for one in wanted:
        name, hash, _ = one.path.rpartition("#")
        if hash and is_table(name):
            raise DataError(
                f"{corrections.file}, line {one.line}: {one.path} is a row of a feature file; only pictures "
                "can be added, so classify pictures instead"
            )
    if not wanted:
        raise DataError(
            f"{corrections.file}: nothing to add, as all reviewed files belong to none of the classes"
        )
    source = named_pictures([one.path for one in wanted])
    refuse_mentioned(source.names())
    files = []
    for file, one in zip(source.files, wanted, strict=True):
        error = file.error
        if error is None and one.when is not None and file.mtime_ns / _NANOSECONDS > one.when + _ROUNDING:
            error = SampleError(
                "changed", "changed after it was reviewed; review it again, or empty its field `when`"
            )
        files.append(file._replace(folders=(one.corrected,), error=error))
    source.files, source.labels_from = files, corrections.file
    n_corrected = sum(class_key(one.label) != class_key(one.corrected) for one in wanted)
    text = f"{corrections.file}: {counted(len(wanted), 'reviewed file')}, {n_corrected} with another label"
    if others := len(corrections) - len(wanted):
        belong = "belongs" if others == 1 else "belong"
        text += f"; {others} more {belong} to none of the classes and {are(others)} not added"
    return source, [Note("reviewed", text)]


def find_copies(fresh: SampleTable, old: SampleTable) -> tuple[set[int], list[Note]]:
    """Return the rows whose content is in the gallery already under another name, and a note on them."""
    contents = list(contents_of(fresh))
    known = names_by_content(old, set(contents))
    copies = {
        row: f"{name} is the same as {known[content]}"
        for row, (name, content) in enumerate(zip(fresh.names, contents, strict=True))
        if known.get(content, name) != name
    }
    if not copies:
        return set(), []
    n = len(copies)
    files = counted(n, "reviewed file")
    text = f"{files} {have(n)} the content of a sample and {are(n)} not added: {next(iter(copies.values()))}"
    return set(copies), [Note("reviewed copies", text)]
