"""Presets: how well-known families of networks expect images."""

from __future__ import annotations

from crnr_cli.records import dataclass

OUTPUTS = ("image_embeds", "pooler_output", "last_hidden_state")
_IMAGENET_MEAN, _IMAGENET_STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
_HALF = (127.5,)
_CLIP_MEAN = (0.48145466 * 255, 0.4578275 * 255, 0.40821073 * 255)
_CLIP_STD = (0.26862954 * 255, 0.26130258 * 255, 0.27577711 * 255)
_TOKENS_FIRST = ("last_hidden_state", "pooler_output")


@dataclass(frozen=True)
class Preset:
    """How a family expects images, and which outputs describe them.

    Means and standard deviations are for pixels from 0 to 255, and crops as in `PixelRequest`.
    """

    crop: float
    filter: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    size: int | None = None  # of the sides in pixels, if the model accepts any size
    layout: str | None = None  # of the input, if the model does not declare it
    outputs: tuple[str, ...] = OUTPUTS  # the outputs with image features, the preferred one first
    has_class_token: bool = False  # whether the first token of a sequence describes the whole image
    crops: tuple[tuple[int, float], ...] = ()  # for members of the family that were trained with another size

    def crop_for(self, fixed: tuple[int, int] | None) -> float:
        """Return the crop for a model whose input may have a fixed size."""
        other = dict(self.crops)
        return other.get(fixed[0], self.crop) if fixed and fixed[0] == fixed[1] else self.crop


PRESETS: dict[str, Preset] = {
    # The evaluation of EfficientNet cuts off 32 pixels at any size; timm 1.0 has the same crops, rounded.
    "efficientnet-lite": Preset(
        crop=224 / 256,
        filter="bicubic",
        mean=(127.0,),
        std=(128.0,),
        size=224,
        crops=tuple((size, size / (size + 32)) for size in (240, 260, 280, 300)),
    ),
    # torchvision 0.29: weights IMAGENET1K_V1
    "imagenet": Preset(224 / 256, "bilinear", _IMAGENET_MEAN, _IMAGENET_STD, size=224),
    # torchvision 0.29: weights IMAGENET1K_V2, such as ResNet-50 and MobileNetV3-Large
    "imagenet-v2": Preset(224 / 232, "bilinear", _IMAGENET_MEAN, _IMAGENET_STD, size=224),
    # The preprocessor_config.json of facebook/dinov2-small and -base. In transformers, the outputs are the
    # normalized tokens, and the first token as pooler_output.
    "dinov2": Preset(
        *(224 / 256, "bicubic", _IMAGENET_MEAN, _IMAGENET_STD),
        size=224,
        layout="nchw",
        outputs=_TOKENS_FIRST,
        has_class_token=True,
        crops=((518, 1.0),),  # timm 1.0: vit_*_patch14_dinov2
    ),
    # transformers 5.22: DINOv3ViTImageProcessor
    "dinov3": Preset(
        *(0.0, "bilinear", _IMAGENET_MEAN, _IMAGENET_STD),
        size=224,
        layout="nchw",
        outputs=_TOKENS_FIRST,
        has_class_token=True,
    ),
    # transformers 5.22: CLIPImageProcessor; the same in open_clip 3.3
    "clip": Preset(1.0, "bicubic", _CLIP_MEAN, _CLIP_STD, size=224, layout="nchw", has_class_token=True),
    # transformers 5.22: SiglipImageProcessor. It has no class token.
    "siglip": Preset(
        *(0.0, "bicubic", _HALF, _HALF),
        size=224,
        layout="nchw",
        outputs=("pooler_output", "image_embeds", "last_hidden_state"),
    ),
    # transformers 5.22: ViTImageProcessor. The pooler of ViT has random weights if none were trained.
    "vit": Preset(
        *(0.0, "bilinear", _HALF, _HALF),
        size=224,
        layout="nchw",
        outputs=_TOKENS_FIRST,
        has_class_token=True,
    ),
    # open_clip 3.3: MobileCLIP-S0 to -S2; -B was trained with 224 pixels
    "mobileclip": Preset(1.0, "bilinear", (0.0,), (255.0,), size=256, layout="nchw"),
    "raw": Preset(0.0, "bilinear", (0.0,), (1.0,)),
}
