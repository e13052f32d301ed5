"""Find the image files in a CSV or a gallery, without showing files that the user did not mean."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path

from crnr_cli.arrays import Array
from crnr_cli.images.pixels import MAX_PIXELS
from crnr_cli.images.regions import hash_image, image_of
from crnr_cli.images.thumbnails import SIDE, read_thumbnails
from crnr_cli.records import dataclass
from crnr_cli.sources.formats import is_table
from crnr_cli.system.names import with_slashes
from crnr_cli.wording import is_or_are

OUTSIDE, MISSING = "outside", "not found"


@dataclass(frozen=True)
class ImageSearch:
    """Where to look for images, and which files may be shown."""

    folders: Sequence[Path] = ()  # for relative names, besides the current folder
    moved_to: Sequence[Path] = ()  # folders for the end of a name, if the images have moved
    roots: Sequence[Path] | None = None  # only files below these may be shown; None: any file
    hashes: Mapping[str, str] = field(default_factory=dict)  # only files with this SHA-256, by name

    def find(self, name: str) -> str:
        """Return the file, or OUTSIDE or MISSING."""
        result = MISSING
        for path in self._places(name):
            image = image_of(path)
            if not os.path.isfile(image):  # noqa: PTH113 - it never raises
                continue
            if name in self.hashes and _sha256(path) != self.hashes[name]:
                continue
            if self.roots is None or _is_below(image, self.roots):
                return path
            result = OUTSIDE
        return result

    def find_or_none(self, name: str) -> str | None:
        """Return the file, or None if it is not there or may not be shown."""
        file = self.find(name)
        return None if file in (OUTSIDE, MISSING) else file

    def _places(self, name: str) -> Iterator[str]:
        yield name
        for folder in self.folders:
            yield os.path.join(folder, name)  # noqa: PTH118 - a name may be any text
        parts = with_slashes(name).split("/")
        for folder in self.moved_to:
            for start in range(len(parts)):
                yield os.path.join(folder, *parts[start:])  # noqa: PTH118


@dataclass
class FoundImages:
    """Small images by name, and the names without an image."""

    images: dict[str, Array]
    missing: list[str]
    outside: list[str]

    def notes(self, what: str, *, elsewhere: str) -> list[str]:
        """Return notes on the images that are not shown."""
        remedy = "give their folder with --images-from"
        reasons = (
            (self.missing, f"was not found; run the command in {elsewhere}, or {remedy}"),
            (
                self.outside,
                f"is outside of the current folder and the folder of the CSV; {remedy} to show it",
            ),
        )
        total = len(self.images) + len(self.missing) + len(self.outside)
        return [
            f"{len(names)} of {total} {what} {is_or_are(len(names))} not shown: {names[0]} {why}"
            for names, why in reasons
            if names
        ]


def find_images(
    names: Sequence[str], search: ImageSearch, max_pixels: int = MAX_PIXELS, longest: int = SIDE
) -> FoundImages:
    """Read images; files that cannot be decoded count as missing, and feature files are skipped."""
    names = [name for name in dict.fromkeys(names) if not is_table(name.rpartition("#")[0])]
    files = {name: search.find(name) for name in names}
    outside = [name for name, file in files.items() if file == OUTSIDE]
    existing = [file for file in files.values() if file not in (OUTSIDE, MISSING)]
    small = read_thumbnails(existing, max_pixels, longest)
    images = {name: small[file] for name, file in files.items() if file in small}
    missing = [name for name in names if name not in images and name not in outside]
    return FoundImages(images, missing, outside)


def search_beside(tables: Sequence[str], more: Sequence[Path]) -> ImageSearch:
    """Search for the images of predictions CSVs: below their folders, the current one and `more`."""
    folders = [Path(name).parent for name in tables if name != "-"]
    return ImageSearch(folders, more, [Path(), *folders, *more])


def _is_below(path: str, roots: Sequence[Path]) -> bool:
    """Return whether the file itself, with all links followed, is below one of these folders."""
    real = Path(os.path.realpath(path))
    return any(real.is_relative_to(os.path.realpath(root)) for root in roots)


def _sha256(path: str) -> str:
    try:
        return hash_image(path)
    except OSError:
        return ""
