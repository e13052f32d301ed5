"""COCO: images, categories and annotations in one JSON object, as in COCO Camera Traps.

An annotation of a whole image has no `bbox`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from crnr_cli.exports.base import (
    PROGRAM,
    Exported,
    ExportedAnswer,
    ExportedImage,
    Exporter,
    ExportOptions,
    LeftOutError,
    number_categories,
    to_json,
)


def _make_coco(images: Sequence[ExportedImage], options: ExportOptions) -> Exported:
    """Return the JSON; `width` and `height` are there for the images that were found."""
    categories = number_categories(images)
    exported = Exported({})
    listed: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for number, image in enumerate(images, 1):
        size = {"width": image.header.width, "height": image.header.height} if image.header else {}
        listed.append({"id": number, "file_name": image.path, **size})
        for answer in image.answers:
            if answer.label is None:  # the image stays, without an annotation
                continue
            try:
                annotation = _annotation(image, answer)
            except LeftOutError as e:
                exported.left_out.append((answer.name, str(e)))
                continue
            ids = {"id": len(annotations) + 1, "image_id": number, "category_id": categories[answer.label]}
            annotations.append({**ids, **annotation})
    exported.files[""] = to_json(
        {
            "info": {"version": "1.0", "description": f"Labels of {PROGRAM}"},
            "images": listed,
            "annotations": annotations,
            "categories": [{"id": number, "name": label} for label, number in categories.items()],
        }
    )
    return exported


def _annotation(image: ExportedImage, answer: ExportedAnswer) -> dict[str, Any]:
    """Return the box in pixels, if there is one, and the probability as COCO's results name it.

    LeftOutError if the box is relative and the image was not found.
    """
    box = image.pixel_box(answer)
    place = {} if box is None else {"bbox": list(box), "area": box.width * box.height, "iscrowd": 0}
    return {**place, **({} if answer.score is None else {"score": answer.score})}


EXPORTER = Exporter(_make_coco, needs_headers=True)
