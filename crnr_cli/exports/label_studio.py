"""Label Studio: a list of tasks, each with an image and the answers as predictions.

Its templates call the tags `image`, `choice` and `label`.
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
    to_json,
)


def _make_label_studio(images: Sequence[ExportedImage], options: ExportOptions) -> Exported:
    exported = Exported({})
    tasks = []
    for image in images:
        results: list[dict[str, Any]] = []
        scores: list[float] = []
        for number, answer in enumerate(image.answers, 1):
            if answer.label is None:  # the task stays, for a person to label
                continue
            try:
                results.append({"id": f"crnr-{number}", **_result(image, answer, answer.label)})
            except LeftOutError as e:
                exported.left_out.append((answer.name, str(e)))
                continue
            scores += [] if answer.score is None else [answer.score]
        # The list of tasks can be sorted by the least probable answer of each.
        score = {"score": min(scores)} if scores else {}
        predictions = [{"model_version": PROGRAM, **score, "result": results}] if results else []
        tasks.append({"data": {"image": options.url_of(image.path)}, "predictions": predictions})
    exported.files[""] = to_json(tasks)
    return exported


def _result(image: ExportedImage, answer: ExportedAnswer, label: str) -> dict[str, Any]:
    score = {} if answer.score is None else {"score": answer.score}
    box = image.relative_box(answer)
    if box is None:
        place = {"from_name": "choice", "to_name": "image", "type": "choices"}
        return {**place, "value": {"choices": [label]}, **score}
    size = (
        {"original_width": image.header.width, "original_height": image.header.height} if image.header else {}
    )
    percent = {name: 100 * value for name, value in box._asdict().items()}
    return {
        **{"from_name": "label", "to_name": "image", "type": "rectanglelabels"},
        **size,
        "value": {**percent, "rotation": 0, "rectanglelabels": [label]},
        **score,
    }


EXPORTER = Exporter(_make_label_studio, options=frozenset({"url_prefix"}))
