"""Split: divide labelled images into a gallery and queries, as copies or links."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from crnr_cli.errors import DataError, OutputError, UsageError, refuse_too_many
from crnr_cli.gallery.duplicates import (
    SIDE,
    Looks,
    find_mirrored_pairs,
    find_near_pairs,
    group_pairs,
    read_small_images,
    standardize,
)
from crnr_cli.images.dates import BY_EXIF
from crnr_cli.images.events import group_by_gap, join_groups
from crnr_cli.images.pixels import PixelRequest, Pixels
from crnr_cli.images.pool import DecoderPool
from crnr_cli.progress import Progress, silent
from crnr_cli.records import dataclass
from crnr_cli.sorting.names import escape_class_name, shorten_name
from crnr_cli.sorting.placing import (
    ALREADY_THERE,
    LEFT_OUT,
    FileOutcome,
    OutcomeReport,
    Place,
    Tree,
    folder_errors,
    is_within,
    longest_name,
    make_if_missing,
    opened_tree,
    place_of_folder,
    put_new,
    refuse_other_device,
)
from crnr_cli.sorting.plan import SortEntry, is_in_place
from crnr_cli.sources.base import InputOptions
from crnr_cli.sources.compact_listing import ImageFile
from crnr_cli.sources.images import Images, is_unrelated
from crnr_cli.sources.opening import open_examples
from crnr_cli.sources.walk import is_system_file
from crnr_cli.system.files import locked, sha256_of
from crnr_cli.system.names import (
    ON_WINDOWS,
    fold_name,
    folds_names,
    normalize_path,
    to_nfc,
    to_portable,
    with_slashes,
)
from crnr_cli.wording import Note, format_count

_REPORTED_EVERY = 200  # files
_OWN = ".crnr-split"  # prefix of our own files
_LOCK, _PART = f"{_OWN}.lock", f"{_OWN}.part"


@dataclass(frozen=True)
class Portion:
    """The samples of a class for the gallery: a share, or a number."""

    share: float = 0.8
    per_class: int | None = None

    def of(self, count: int) -> int:
        """Return the number of samples: at least one and, of several, not all."""
        wanted = int(self.share * count + 0.5) if self.per_class is None else self.per_class
        return max(1, min(wanted, count - 1))


def divide_samples(
    names: Sequence[tuple[str, str]], groups: Sequence[Hashable], portion: Portion, seed: int
) -> list[bool]:
    """Return whether each sample, by its class and its name there, goes to the gallery.

    The seed decides the order of the groups. Each goes to the gallery if all its classes still have room
    there. A class that would have no samples in the gallery gets its first group.
    """
    keys = [_draw_key(seed, label, name) for label, name in names]
    members: dict[Hashable, list[int]] = {}
    for i in sorted(range(len(names)), key=keys.__getitem__):
        members.setdefault(groups[i], []).append(i)
    room = {label: portion.of(count) for label, count in Counter(label for label, _ in names).items()}
    chosen: set[Hashable] = set()
    present: set[str] = set()
    for group, samples in members.items():
        needed = Counter(names[i][0] for i in samples)
        if all(room[label] >= count for label, count in needed.items()):
            chosen.add(group)
            present.update(needed)
            for label, count in needed.items():
                room[label] -= count
    for group, samples in members.items():
        labels = {names[i][0] for i in samples}
        if not labels <= present and group not in chosen:
            chosen.add(group)
            present |= labels
    return [group in chosen for group in groups]


def group_by_content(files: Sequence[tuple[str, int]], progress: Progress = silent) -> list[Hashable]:
    """Return a group for every file, by path and size: files with equal bytes. Unique sizes are not read."""
    sizes = Counter(size for _, size in files)
    groups: list[Hashable] = []
    for number, (path, size) in enumerate(files, 1):
        group: Hashable = number
        if sizes[size] > 1:
            try:
                group = sha256_of(path)
            except OSError as e:
                raise DataError(f"{path}: cannot read it ({e.strerror})") from e
        groups.append(group)
        if number % _REPORTED_EVERY == 0 or number == len(files):
            progress("looking for copies", number, len(files))
    return groups


def group_by_looks(
    paths: Sequence[str], groups: Sequence[Hashable], options: InputOptions, progress: Progress = silent
) -> list[Hashable]:
    """Return larger groups: they include near duplicates and mirror images. Every image is read."""
    firsts = list({group: i for i, group in reversed(list(enumerate(groups)))}.values())[::-1]
    images, seen = read_small_images(
        [paths[i] for i in firsts], None, DecoderPool(options.jobs), options.max_pixels
    )
    # The product of two standardized images is their correlation.
    vectors = standardize(images).reshape(len(images), SIDE * SIDE)
    looks = Looks.of(vectors, images, np.arange(len(images)))
    mirrored = [(one, other) for one, other, _ in find_mirrored_pairs(looks)]
    pairs = [*find_near_pairs(looks, progress=progress).tolist(), *mirrored]
    joined = group_pairs(np.array(firsts)[seen[np.array(pairs, dtype=np.int64).reshape(-1, 2)]])
    group_of = {groups[i]: groups[members[0]] for members in joined for i in members}
    return [group_of.get(group, group) for group in groups]


def _find_events(files: Sequence[_File], gap: float, options: SplitOptions) -> list[int]:
    """Return the event of every file, by the capture dates of the EXIF data."""
    source = Images([ImageFile(one.path, ()) for one in files], dates=BY_EXIF)
    dates = source.read_dates(source.files, options.max_pixels, DecoderPool(options.jobs))
    events: list[int] = group_by_gap([one.path for one in files], dates, gap).tolist()
    return events


def _draw_key(seed: int, label: str, name: str) -> bytes:
    """Return a sort key from the name in one Unicode form, because file systems differ."""
    text = to_nfc(f"{seed}\0{label}\0{name}")
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()


@dataclass(frozen=True, kw_only=True)
class SplitOptions(InputOptions):
    gallery: Path
    queries: Path
    portion: Portion = field(default_factory=Portion)
    seed: int = 0
    how: str = "copy"
    dry_run: bool = False
    event_gap: float | None = None  # keep photographs on one side that were taken within this many seconds
    group_similar: bool = False  # keep near duplicates and mirror images on one side
    portable_names: bool = False  # also on other systems than Windows, which always needs them

    @property
    def has_portable_names(self) -> bool:
        return self.portable_names or ON_WINDOWS

    def folder(self, to_gallery: bool) -> Path:
        return self.gallery if to_gallery else self.queries


@dataclass
class SplitReport(OutcomeReport):
    classes: dict[str, tuple[int, int]] = field(default_factory=dict)  # files in the gallery, and queries
    copies: int = 0  # files with the same bytes as another file
    events: int | None = None  # events of several files; None if not looked for
    similar: int | None = None  # near duplicates and mirror images of other files; None if not looked for
    notes: list[Note] = field(default_factory=list)


class _File(NamedTuple):
    path: str
    source: str  # the whole path, without links
    label: str
    name: str  # below the class folder, on either side
    status: os.stat_result


class _Step(NamedTuple):
    row: int  # of the report
    to_gallery: bool
    entry: SortEntry


def split(names: Sequence[str], options: SplitOptions, progress: Progress = silent) -> SplitReport:
    """Divide the images of every class. The same command continues a stopped run."""
    source = open_examples(names, options)
    if not isinstance(source, Images):
        raise UsageError("split takes images only; for feature files, use `crnr compare --holdout 0.3`")
    _refuse_overlap(source, options)
    report = SplitReport(options.how, notes=[Note("source", text) for text in source.notes()])
    files = _list_files(source, options, report)
    total = len(files) + len(report.left_out)
    refuse_too_many(report.left_out, total, options.max_failure_rate, "file", fate="to be left out")
    if not files:
        raise _nothing_to_split_error(source, report)
    groups = group_by_content([(one.path, one.status.st_size) for one in files], progress)
    report.copies = len(groups) - len(set(groups))
    if options.group_similar:
        n_contents = len(set(groups))
        groups = group_by_looks([one.path for one in files], groups, options, progress)
        report.similar = n_contents - len(set(groups))
    if options.event_gap is not None:
        events = _find_events(files, options.event_gap, options)
        report.events = sum(count > 1 for count in Counter(events).values())
        groups = join_groups(groups, events).tolist()
    chosen = divide_samples([(one.label, one.name) for one in files], groups, options.portion, options.seed)
    _count(files, chosen, report)
    steps = _plan_steps(files, chosen, options, report)
    # A run that was killed at its very end has left only its own files.
    own = (options.folder(side) / name for side in (True, False) for name in (_LOCK, _PART))
    if not options.dry_run and (steps or any(map(os.path.lexists, own))):
        _perform(steps, options, report, progress)
    return report


def _refuse_overlap(source: Images, options: SplitOptions) -> None:
    """Refuse overlapping folders: files in a source would be split again, others be on both sides."""
    sides = {side: os.path.realpath(side) for side in (options.gallery, options.queries)}
    if len(sides) < 2 or is_within(*sides.values()) or is_within(*reversed(sides.values())):
        raise UsageError("--train and --test: give two folders, neither of them in the other")
    for folder in (Path(named.path) for named in source.named_folders):
        real = os.path.realpath(folder)
        for side, place in sides.items():
            if is_within(place, real):
                raise UsageError(f"{side}: is inside {folder}, which is an input; choose another folder")


def _list_files(source: Images, options: SplitOptions, report: SplitReport) -> list[_File]:
    """Return the labelled images, with names made unique within each class, sorted by class and name."""
    unnamed = [file.path for file in source.files if not file.error and is_unrelated(file.path, "not_image")]
    request = PixelRequest(None, max_pixels=options.max_pixels, header_only=True)
    headers = DecoderPool(options.jobs).decode(unnamed, request)
    unrelated = {
        path for path, header in zip(unnamed, headers, strict=True) if not isinstance(header, Pixels)
    }
    report.unrelated = len(unrelated)
    longest = min(longest_name(place_of_folder(options.folder(to_gallery))) for to_gallery in (True, False))
    form = to_portable if options.has_portable_names else str
    key = _name_key(options)
    listed = [
        (*_class_and_name(file, source, longest, form), file.path)
        for file in source.files
        if file.path not in unrelated and _is_usable(file, source, report)
    ]
    files = []
    taken: set[tuple[str, str]] = set()
    seen: set[str] = set()
    for label, name, path in sorted(listed):
        place, number = os.path.realpath(path), 1
        try:
            status = os.lstat(place)
        except OSError as e:
            report.rows.append(FileOutcome(path, "", LEFT_OUT, e.strerror or "cannot be read"))
            continue
        if (here := normalize_path(path)) in seen:  # links to one file are copies of it
            report.rows.append(FileOutcome(path, "", LEFT_OUT, "is named twice"))
            continue
        seen.add(here)
        above, slash, last = name.rpartition("/")
        while (key(label), key(own := above + slash + shorten_name(last, longest, number))) in taken:
            number += 1
        taken.add((key(label), key(own)))
        files.append(_File(path, place, label, own, status))
    _refuse_merged(files, key)
    return files


def _name_key(options: SplitOptions) -> Callable[[str], str]:
    """Return a function whose result is equal for names that would be one name in the new folders."""
    sides = (place_of_folder(options.folder(to_gallery)) for to_gallery in (True, False))
    return fold_name if options.has_portable_names or any(map(folds_names, sides)) else str


def _refuse_merged(files: Sequence[_File], key: Callable[[str], str]) -> None:
    seen: dict[str, str] = {}
    for label in dict.fromkeys(file.label for file in files):
        if (other := seen.setdefault(key(label), label)) != label:
            # As ASCII, because two Unicode forms of one name look the same.
            raise DataError(
                f"classes {other!a} and {label!a} differ only in case or Unicode form, and would be one "
                "folder on this or another system; rename one"
            )


def _is_usable(file: ImageFile, source: Images, report: SplitReport) -> bool:
    reason = str(file.error) if file.error else "" if file.folders else source.why_unlabelled
    if reason:
        report.rows.append(FileOutcome(file.path, "", LEFT_OUT, reason))
    return not reason


def _class_and_name(
    file: ImageFile, source: Images, longest: int, form: Callable[[str], str]
) -> tuple[str, str]:
    """Return its class folder, and its name there, which keeps the folders below the class."""
    label, name = file.folders[0], file.path.rpartition("/")[2]
    if source.is_labelled:  # a label may be any text
        return shorten_name(form(escape_class_name(label)), longest), form(name)
    for folder in source.named_folders:
        above = f"{with_slashes(str(Path(folder.path, label)))}/"
        if file.path.startswith(above):
            name = file.path.removeprefix(above)
    return form(label), "/".join(map(form, name.split("/")))


def _count(files: Sequence[_File], chosen: Sequence[bool], report: SplitReport) -> None:
    sides = Counter((file.label, is_chosen) for file, is_chosen in zip(files, chosen, strict=True))
    labels = sorted({file.label for file in files})
    report.classes = {label: (sides[label, True], sides[label, False]) for label in labels}
    alone = [label for label, (_, queries) in report.classes.items() if not queries]
    if alone:
        classes = ", ".join(alone[:3]) + (", ..." if len(alone) > 3 else "")
        text = (
            f"no queries of {format_count(len(alone), 'class')}, whose images are too few or all the same: "
            f"{classes}"
        )
        report.notes.append(Note("no queries", text))


def _plan_steps(
    files: Sequence[_File], chosen: Sequence[bool], options: SplitOptions, report: SplitReport
) -> list[_Step]:
    """Return the steps to do, and add every file to the report; refuse folders with other content."""
    targets: dict[bool, dict[str, _File]] = {True: {}, False: {}}
    for file, to_gallery in zip(files, chosen, strict=True):
        targets[to_gallery][f"{file.label}/{file.name}"] = file
    steps, key = [], _name_key(options)
    for to_gallery, wanted in targets.items():
        folder = options.folder(to_gallery)
        device = os.stat(place_of_folder(folder)).st_dev  # noqa: PTH116
        with opened_tree(folder) if folder.is_dir() else contextlib.nullcontext() as tree:
            there = _targets_in_place(folder, tree, wanted, options.how, key) if tree else set()
        for target, file in wanted.items():
            if options.how == "hardlink":
                refuse_other_device(file.path, folder, file.status, device)
            result = ALREADY_THERE if target in there else options.how
            if target not in there:
                steps.append(_Step(len(report.rows), to_gallery, _entry(file, target)))
            report.rows.append(FileOutcome(file.path, f"{folder}/{target}", result))
    return steps


def _entry(file: _File, target: str) -> SortEntry:
    return SortEntry(file.source, target, target, file.status.st_size, file.status.st_mtime_ns)


def _targets_in_place(
    folder: Path, tree: Tree, wanted: dict[str, _File], how: str, key: Callable[[str], str]
) -> set[str]:
    """Return the targets that are already in place; anything else in the folder is refused."""
    found = set()
    by_key = {key(target): target for target in wanted}
    for above, folders, names in os.walk(folder, onerror=_raise_unreadable):
        links = [name for name in folders if os.path.islink(os.path.join(above, name))]  # noqa: PTH114, PTH118
        for name in (*links, *names):
            path = os.path.join(above, name)  # noqa: PTH118
            target = by_key.get(key(with_slashes(os.path.relpath(path, folder))))
            if target is None:
                if is_system_file(name):
                    continue
                raise OutputError(
                    f"{path}: is not part of this split; choose an empty folder, or one of the same split"
                )
            if not is_in_place(_entry(wanted[target], target), how, tree.place(target)):
                raise OutputError(
                    f"{path}: exists already, and differs from this split; choose an empty folder"
                )
            found.add(target)
    return found


def _raise_unreadable(error: OSError) -> None:
    raise OutputError(f"{error.filename}: cannot look into it ({error.strerror}); choose another folder")


def _perform(steps: Sequence[_Step], options: SplitOptions, report: SplitReport, progress: Progress) -> None:
    with ExitStack() as stack:
        trees = {side: stack.enter_context(_locked_folder(options.folder(side))) for side in (True, False)}
        for number, (row, to_gallery, entry) in enumerate(steps, 1):
            tree = trees[to_gallery]
            try:
                target = tree.place(entry.target, make=True)
                put_new(entry.source, target, Place(_PART, tree.root), options.how)
            except OSError as e:
                report.leave_out(row, tree.path / entry.target, e)
            if number % _REPORTED_EVERY == 0 or number == len(steps):
                progress("splitting", number, len(steps))


@contextmanager
def _locked_folder(folder: Path) -> Iterator[Tree]:
    """Make the folder if it is missing, and lock it; a new folder that stays empty is removed again."""
    is_new = False
    try:
        with folder_errors(folder):
            is_new = make_if_missing(folder)
            with locked(folder / _LOCK, folder), opened_tree(folder) as tree:
                with contextlib.suppress(FileNotFoundError):
                    Place(_PART, tree.root).remove()  # a killed run may have left it
                yield tree
    finally:
        if is_new:
            with contextlib.suppress(OSError):
                folder.rmdir()


def _nothing_to_split_error(source: Images, report: SplitReport) -> DataError:
    if not report.left_out:
        return DataError(
            f"none of the {format_count(len(source), 'file')} is an image; give a folder with one folder of "
            "images per class"
        )
    first = report.left_out[0]
    return DataError(
        f"no image has a class: {first.path}: {first.reason}; give a folder with one folder of images per "
        "class, or a label table with --labels"
    )
