"""Undo a sort: files that were moved go back, and copies and links that are unchanged are removed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from crnr_cli.errors import OutputError
from crnr_cli.progress import Progress, silent
from crnr_cli.results.sort_list import LOCK, Entry, SortList, is_in_place, read_list
from crnr_cli.sources.named_files import NamedFiles
from crnr_cli.system.files import locked
from crnr_cli.system.placing import PART, Place, Tree, folder_errors, is_same_file, move_new, opened_tree

_REPORTED_EVERY = 200  # files


@dataclass
class UnsortReport:
    how: str
    undone: int = 0
    left_out: list[tuple[str, str]] = field(default_factory=list)  # targets that stay, and why


def unsort(path: Path, below: Sequence[Path] = (), progress: Progress = silent) -> UnsortReport:
    """Undo what a list records. It can be stopped and started again, and overwrites nothing.

    The list is removed when nothing of it is left.
    """
    folder = path.parent
    report, made = UnsortReport(read_list(path).how), False
    with folder_errors(folder), locked(folder / LOCK, folder), opened_tree(folder) as tree:
        done = read_list(path)  # another run may have changed it before we had the lock
        named = NamedFiles([Path(), folder, *below], str(path), follow_links=False)
        if done.how == "move":  # a list may come from a stranger, too
            for above in {str(Path(entry.source).parent): None for entry in done.entries}:
                named.allowed(above, above)
        with contextlib.suppress(FileNotFoundError):
            Place(PART, tree.root).remove()
        _undo(done, tree, report, progress)
        for name in sorted(filter(None, done.made), key=len, reverse=True):
            tree.remove_folder(name)
        if not report.left_out:
            path.unlink()
            made = "" in done.made
    if made:
        with contextlib.suppress(OSError):  # there is something else in it
            folder.rmdir()
    return report


def _undo(done: SortList, tree: Tree, report: UnsortReport, progress: Progress) -> None:
    for number, entry in enumerate(reversed(done.entries), 1):
        reason = None
        try:
            target = tree.place(entry.target)
            reason = (
                _put_back(entry, target, report)
                if done.how == "move"
                else _removed(entry, done.how, target, report)
            )
        except FileNotFoundError:
            if done.how == "move" and Place(entry.source).status() is None:
                reason = "there is no such file"
        except FileExistsError:
            reason = f"there is another file at {entry.source}, and nothing is overwritten"
        except (OSError, OutputError) as e:
            reason = str(e) if isinstance(e, OutputError) else os.strerror(e.errno or 0)
        if reason:
            report.left_out.append((f"{tree.path}/{entry.target}", reason))
        if number % _REPORTED_EVERY == 0 or number == len(done.entries):
            progress("sorting", number, len(done.entries))


def _put_back(entry: Entry, target: Place, report: UnsortReport) -> str | None:
    source = Place(entry.source)
    if target.status() is None:
        return None if source.status() else "there is no such file"
    above = os.path.dirname(entry.source)  # noqa: PTH120
    os.makedirs(above, exist_ok=True)  # noqa: PTH103
    try:
        move_new(target, source, Place(f"{above}/{PART}"))
    except FileExistsError:
        if not is_same_file(source, target):
            raise
        target.remove()
    report.undone += 1
    return None


def _removed(entry: Entry, how: str, target: Place, report: UnsortReport) -> str | None:
    if target.status() is None:
        return None
    if not is_in_place(entry, how, target):
        return "has changed since it was sorted"
    if how == "copy" and Place(entry.source).status() is None:
        return f"there is no {entry.source} any more, so that this may be the last copy"
    target.remove()
    report.undone += 1
    return None
