"""The size that pictures are brought to before they are compared, if the user does not choose one."""

from __future__ import annotations

from crnr_cli.recipe.base import PicturesSeen
from crnr_cli.wording import Note

_LARGEST_NATIVE = 64  # if all pictures have the same size, at most this, they keep it
_DEFAULT_SIZE = (32, 32)
# Measured by benchmarks/vectors.py, with the default settings.
ON_PHOTOGRAPHS = (
    "of 12 kinds of flowers with 12 examples each, pixels label 26 % correctly, gradients with colour 69 %, "
    "and a network 94 %"
)

Size = tuple[int, int]


def working_size(
    chosen: Size | None, pictures: PicturesSeen, of_large: Size, weak: str
) -> tuple[Size, list[Note]]:
    """The chosen size, or the common one of all pictures if it is small, or a default, with notes on it.

    `of_large` is the default if there are large pictures, and `weak` a note for them.
    """
    if chosen is not None:
        return chosen, []
    sizes = pictures.sizes()
    if len(sizes) == 1 and max(next(iter(sizes))) <= _LARGEST_NATIVE:
        return next(iter(sizes)), []
    if not sizes:  # no picture can be read, which is reported later
        return _DEFAULT_SIZE, []
    are_large = any(max(found) > _LARGEST_NATIVE for found in sizes)
    width, height = of_large if are_large else _DEFAULT_SIZE
    why = "differ in size" if len(sizes) > 1 else f"are larger than {_LARGEST_NATIVE}x{_LARGEST_NATIVE}"
    notes = [
        Note("size", f"pictures {why}: all are resized to {width}x{height}; --size chooses another size")
    ]
    if are_large:
        notes.append(Note("weak vectors", weak))
    return (width, height), notes
