"""Read how images are prepared from the preprocessor_config.json of Hugging Face.

transformers resizes an image and then cuts out its centre. crnr cuts out the same part first and resizes it,
in one step: `size` {"shortest_edge": 256} with a `crop_size` of 224 is a crop of 224/256. The pixels differ a
little, because the box is rounded to whole pixels of the image, and the filter does not reach beyond it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from crnr_cli.models.config_files import (
    FILTERS,
    FoundSettings,
    find_section,
    mean_and_std,
    require_number,
    require_per_channel,
    require_share,
    require_side,
    short_repr,
)

_HALF = [0.5, 0.5, 0.5]
_IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
_CLIP = {
    **{"size": 224, "crop_size": 224, "do_center_crop": True, "resample": 3, "default_to_square": False},
    **{
        "image_mean": [0.48145466, 0.4578275, 0.40821073],
        "image_std": [0.26862954, 0.26130258, 0.27577711],
    },
}
_PLAIN = {"image_mean": _HALF, "image_std": _HALF}
_MOBILENET = _PLAIN | {
    **{"size": 256, "crop_size": 224, "do_center_crop": True, "resample": 2, "default_to_square": False}
}

# The defaults of the image processors in transformers 4.57: old files are short.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "ViT": _PLAIN | {"size": 224, "resample": 2},
    "DeiT": _PLAIN | {"size": 256, "crop_size": 224, "do_center_crop": True, "resample": 3},
    "Beit": _PLAIN | {"size": 256, "crop_size": 224, "do_center_crop": True, "resample": 3},
    "CLIP": _CLIP,
    "ChineseCLIP": _CLIP,
    "Bit": _CLIP,
    "ViTHybrid": _CLIP,
    "Siglip": _PLAIN | {"size": 224, "resample": 3},
    "Blip": _CLIP | {"size": 384, "do_center_crop": False, "default_to_square": True},
    "DINOv3ViT": _IMAGENET | {"size": 224, "resample": 2},
    "ConvNext": _PLAIN | {"size": 384, "crop_pct": 224 / 256, "resample": 2, "default_to_square": False},
    "PoolFormer": _IMAGENET
    | {"size": 224, "crop_size": 224, "crop_pct": 0.9, "resample": 3}
    | {"do_center_crop": True, "default_to_square": False},
    "EfficientNet": _PLAIN | {"size": 346, "resample": 0, "include_top": True},
    "MobileNetV1": _MOBILENET,
    "MobileNetV2": _MOBILENET,
    "MobileViT": _MOBILENET
    | {"size": 224, "crop_size": 256, "do_normalize": False, "do_flip_channel_order": True},
    "Pvt": _IMAGENET | {"size": 224, "resample": 2},
}
_ALWAYS = {"do_resize": True, "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True}
# Processors whose files look like others, but mean something else.
_OTHERS = ("Levit", "Perceiver", "TextNet")
_FAMILIES = {"CLIP": "clip", "ChineseCLIP": "clip", "Siglip": "siglip", "DINOv3ViT": "dinov3"}
_ENDINGS = ("Fast", "Pil", "ImageProcessor", "FeatureExtractor")

_FOLLOWED = {"do_resize", "do_center_crop", "do_rescale", "do_normalize", "do_flip_channel_order"}
_SWITCHES = {"default_to_square", "include_top", "offset", "rescale_offset"}
_HARMLESS = {"do_convert_rgb", "do_reduce_labels"}  # every image is converted, and there are no labels
# With these, images have different sizes.
_SIZES_VARY = ("max_num_patches", "min_pixels", "max_pixels", "size_divisor", "pad_size", "max_image_tiles")
_NEVER_CROPPED_FROM = 384  # pixels: ConvNext squeezes images for networks of at least this size


def read_processor(content: Mapping[str, Any]) -> FoundSettings | None:
    """Read processor_config.json, which contains several processors, one of them for images."""
    inner = find_section(content, "image_processor")
    return None if inner is None else read_image_processor(inner)


def read_image_processor(content: Mapping[str, Any]) -> FoundSettings:
    """Read preprocessor_config.json; missing and null values are the image processor's defaults."""
    content = find_section(content, "image_processor") or content
    kind = _kind(content)
    values = _ALWAYS | _DEFAULTS.get(kind, {}) | {k: v for k, v in content.items() if v is not None}
    if (fault := _fault(kind, values)) is not None:
        return FoundSettings(faults={"": fault})
    found = FoundSettings(family=_FAMILIES.get(kind))
    _read_geometry(kind, values, found)
    try:
        found.settings["filter"] = _filter(values.get("resample"))
    except ValueError as e:
        found.faults["filter"] = str(e)
    try:
        found.settings |= _read_scale(values)
    except ValueError as e:
        found.faults |= {"mean": str(e), "std": str(e)}
    if _is_on(values, "do_flip_channel_order"):
        found.settings["channels"] = "bgr"
    return found


def _kind(content: Mapping[str, Any]) -> str:
    """Return the kind of the image processor: ViT for ViTImageProcessorFast."""
    name = content.get("image_processor_type") or content.get("feature_extractor_type")
    if not isinstance(name, str):
        return ""
    for ending in _ENDINGS:
        name = name.removesuffix(ending)
    return name


def _fault(kind: str, values: Mapping[str, Any]) -> str | None:
    """Return why the whole file cannot be used, or None."""
    if kind in _OTHERS:
        return f"crnr cannot prepare images as the image processor {kind} does"
    known = {*_FOLLOWED, *_HARMLESS, *_SWITCHES}
    switches = [name for name in values if name.startswith("do_") or name in _SWITCHES]
    if odd := [name for name in switches if not isinstance(values[name], bool)]:
        return f"{short_repr(odd[0])} is {short_repr(values[odd[0]])}, neither true nor false"
    if asked := [name for name in switches if values[name] and name not in known]:
        return f"the file requires {short_repr(asked[0])}, which crnr cannot do"
    if varying := [name for name in _SIZES_VARY if values.get(name)]:
        return f"with {varying[0]}, images keep their own shapes, but crnr needs the same size for all"
    return None


def _is_on(values: Mapping[str, Any], name: str) -> bool:
    return values.get(name) is True


def _filter(number: Any) -> str:
    if number is None:
        raise ValueError("resample is missing")
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < len(FILTERS):
        raise ValueError(f"resample is {short_repr(number)}, not a number of a filter")
    return FILTERS[number]


def _read_scale(values: Mapping[str, Any]) -> dict[str, Any]:
    factor, offset = 1.0, 0.0
    if _is_on(values, "do_rescale"):
        factor = require_number(values["rescale_factor"], "rescale_factor")
        if _is_on(values, "rescale_offset") or _is_on(values, "offset"):
            offset = 1.0
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    if _is_on(values, "do_normalize"):
        for name in ("image_mean", "image_std"):
            if name not in values:
                raise ValueError(f"{name} is missing")
        mean = require_per_channel(values["image_mean"], "image_mean")
        std = require_per_channel(values["image_std"], "image_std")
    if _is_on(values, "include_top"):  # EfficientNet divides by its image_std once more, normalized or not
        again = require_per_channel(values.get("image_std", 1), "image_std")
        width = max(len(std), len(again))
        std = tuple(a * b for a, b in zip(_widen(std, width), _widen(again, width), strict=True))
    return mean_and_std(mean, std, factor, offset)


def _widen(values: tuple[float, ...], count: int) -> tuple[float, ...]:
    return values * count if len(values) == 1 else values


def _read_geometry(kind: str, values: Mapping[str, Any], found: FoundSettings) -> None:
    """Store size and crop, or their faults, in `found`."""
    if not _is_on(values, "do_resize"):
        fault = "images are not resized, but crnr needs the same size for all"
        found.faults |= {"size": fault, "crop": fault}
        return
    try:
        edge, both = _read_resize(kind, values)
        target = _target(kind, values)
        found.settings["size"] = target or both or (edge, edge)
        found.settings["crop"] = _crop(edge, both, target)
    except ValueError as e:
        found.faults["crop"] = str(e)
        if "size" not in found.settings:
            found.faults["size"] = str(e)


def _read_resize(kind: str, values: Mapping[str, Any]) -> tuple[int, tuple[int, int] | None]:
    """Return the length of the shorter side, and width and height if images are squeezed."""
    size = values.get("size")
    if size is None:
        raise ValueError("size is missing")
    if not isinstance(size, dict):
        squeezes = values.get("default_to_square", True) is True
        size = {"height": size, "width": size} if squeezes else {"shortest_edge": size}
    given = {name for name, value in size.items() if value is not None}
    if given == {"height", "width"}:
        both = _sides(size, "size")
        edge = min(both)
    elif given == {"shortest_edge"}:
        both, edge = None, require_side(size["shortest_edge"], "size")
    else:
        raise ValueError(f"size is given by {' and '.join(map(short_repr, sorted(given))) or 'nothing'}")
    if "crop_pct" not in values:
        return edge, both
    enlarged = int(edge / require_share(values["crop_pct"], "crop_pct"))
    if kind == "ConvNext" and both is None:
        return (enlarged, None) if edge < _NEVER_CROPPED_FROM else (edge, (edge, edge))
    if kind == "PoolFormer" and len(set(both or (edge,))) == 1:
        return enlarged, None
    raise ValueError("crnr cannot follow this crop_pct")


def _target(kind: str, values: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return width and height of the crop, or None."""
    if kind == "ConvNext":  # its size is the size after the crop
        size = values["size"]
        result = require_side(size.get("shortest_edge") if isinstance(size, dict) else size, "size")
        return result, result
    if not _is_on(values, "do_center_crop"):
        return None
    crop = values.get("crop_size", values["size"])
    return _sides(crop if isinstance(crop, dict) else {"height": crop, "width": crop}, "crop_size")


def _crop(edge: int, both: tuple[int, int] | None, target: tuple[int, int] | None) -> float:
    if target is None:
        if both is None:
            raise ValueError(f"the shorter side becomes {edge} pixels long, and nothing is cut off")
        return 0.0
    text = f"{target[0]}x{target[1]}"
    if both is not None:
        if both != target:
            squeezed = f"{both[0]}x{both[1]}"
            raise ValueError(
                f"images are squeezed to {squeezed} and then cut to {text}, which crnr cannot do"
            )
        return 0.0
    if target[0] != target[1]:
        raise ValueError(f"images are cut to {text}, not to a square, which crnr cannot do")
    if target[0] > edge:
        raise ValueError(f"{text} is cut out of {edge} pixels, with black around them, which crnr cannot do")
    return target[0] / edge


def _sides(size: Mapping[str, Any], name: str) -> tuple[int, int]:
    if not {"height", "width"} <= set(size):
        raise ValueError(f"{name} is {short_repr(dict(size))}, not height and width")
    return require_side(size["width"], name), require_side(size["height"], name)
