"""EfficientNet-Lite as an ONNX model, made of its weights: images in, 1280 features out.

The layers follow the published network (models/official/efficientnet/lite in
https://github.com/tensorflow/tpu), without the classifier at its end. Batch normalization is folded into the
convolutions before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from crnr_cli.arrays import Array

_STAGES = ((1, 1), (2, 2), (2, 2), (2, 3), (1, 3), (2, 4), (1, 1))  # stride, blocks in lite0
_EPSILON = 1e-3  # of batch normalization
_UNUSED = ("_fc.weight", "_fc.bias")  # the classifier
_OPSET, _IR_VERSION = 13, 7  # all supported versions of onnxruntime read these
INPUT, OUTPUT = "image", "features"


def make_model(weights: Mapping[str, Array], size: int, depth: float) -> bytes:
    """Return the model for images of `size` x `size` pixels as the content of a file, always the same bytes.

    `depth` is the factor by which a network has more blocks than lite0. ValueError if the weights do not
    belong to such a network.
    """
    from onnx import TensorProto, helper

    graph = _Graph(weights, size)
    try:
        values = graph.add_convolution(INPUT, "_conv_stem", "_bn0", stride=2)
        for number, stride in enumerate(_strides(depth)):
            values = graph.add_block(values, f"_blocks.{number}.", stride)
        values = graph.add_convolution(values, "_conv_head", "_bn1")
    except KeyError as e:
        raise ValueError(f"the weights {e.args[0]} are missing") from e
    if graph.unused:
        raise ValueError(f"the weights {min(graph.unused)} belong to another network")
    graph.nodes.append(helper.make_node("ReduceMean", [values], [OUTPUT], axes=[2, 3], keepdims=0))
    n_features = graph.n_channels
    image = helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, ["batch", 3, size, size])
    features = helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, ["batch", n_features])
    made = helper.make_graph(graph.nodes, "efficientnet-lite", [image], [features], graph.constants)
    opset = helper.make_opsetid("", _OPSET)
    model = helper.make_model(made, opset_imports=[opset], ir_version=_IR_VERSION, producer_name="crnr")
    content: bytes = model.SerializeToString(deterministic=True)
    return content


def _strides(depth: float) -> list[int]:
    """Return the stride of every block; the first and the last stage always have one block."""
    strides: list[int] = []
    for stage, (stride, count) in enumerate(_STAGES):
        repeated = count if stage in (0, len(_STAGES) - 1) else int(np.ceil(count * depth))
        strides += [stride] + [1] * (repeated - 1)
    return strides


@dataclass
class _Graph:
    """The unfinished model."""

    weights: Mapping[str, Array]
    side: int  # of the values, in pixels
    n_channels: int = 3
    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)
    unused: set[str] = field(init=False)

    def __post_init__(self) -> None:
        from onnx import numpy_helper

        counters = {name for name in self.weights if name.endswith(".num_batches_tracked")}
        self.unused = set(self.weights) - counters - set(_UNUSED)
        for name, limit in (("zero", 0.0), ("six", 6.0)):
            self.constants.append(numpy_helper.from_array(np.array(limit, np.float32), name))

    def _take(self, name: str) -> Array:
        self.unused.discard(name)
        numbers = self.weights[name].astype(np.float64)
        if not numbers.size or not np.isfinite(numbers).all():
            raise ValueError(f"the weights {name} are empty, or not all finite")
        return numbers

    def add_block(self, values: str, prefix: str, stride: int) -> str:
        """Add a block: more channels, one convolution each, fewer channels, and the sum with the input."""
        from onnx import helper

        n_before, before = self.n_channels, values
        if f"{prefix}_expand_conv.weight" in self.weights:
            values = self.add_convolution(values, f"{prefix}_expand_conv", f"{prefix}_bn0")
        values = self.add_convolution(values, f"{prefix}_depthwise_conv", f"{prefix}_bn1", stride)
        values = self.add_convolution(values, f"{prefix}_project_conv", f"{prefix}_bn2", clips=False)
        if stride > 1 or self.n_channels != n_before:
            return values
        self.nodes.append(helper.make_node("Add", [values, before], [f"{prefix}sum"]))
        return f"{prefix}sum"

    def add_convolution(
        self, values: str, name: str, norm: str, stride: int = 1, *, clips: bool = True
    ) -> str:
        """Add a convolution with batch normalization and, if `clips`, ReLU6."""
        from onnx import helper, numpy_helper

        kernel = self._take(f"{name}.weight")
        factor, bias, mean, variance = (
            self._take(f"{norm}.{of}") for of in ("weight", "bias", "running_mean", "running_var")
        )
        if kernel.ndim != 4 or any(one.shape != kernel.shape[:1] for one in (factor, bias, mean, variance)):
            raise ValueError(f"the weights {name} or {norm} have another shape")
        n_outputs, n_inputs, height, width = kernel.shape
        group = n_outputs if n_inputs == 1 else 1
        if n_inputs * group != self.n_channels or height != width:
            raise ValueError(f"the weights {name} have another shape")
        if variance.min() < 0:
            raise ValueError(f"the weights {norm}.running_var are negative")
        scale = factor / np.sqrt(variance + _EPSILON)
        shift = bias - mean * scale
        folded = {f"{name}.weight": kernel * scale[:, None, None, None], f"{name}.bias": shift}
        for constant, numbers in folded.items():
            self.constants.append(numpy_helper.from_array(numbers.astype(np.float32), constant))
        before, after = self._padding(width, stride)
        self.nodes.append(
            helper.make_node(
                "Conv",
                [values, *folded],
                [f"{name}.out"],
                group=group,
                kernel_shape=[height, width],
                pads=[before, before, after, after],
                strides=[stride, stride],
            )
        )
        self.side, self.n_channels = -(-self.side // stride), n_outputs
        if not clips:
            return f"{name}.out"
        self.nodes.append(helper.make_node("Clip", [f"{name}.out", "zero", "six"], [f"{name}.clipped"]))
        return f"{name}.clipped"

    def _padding(self, width: int, stride: int) -> tuple[int, int]:
        """Return the zeros on either side, as in TensorFlow's SAME padding: an odd zero comes after."""
        total = max(0, (-(-self.side // stride) - 1) * stride + width - self.side)
        return total // 2, total - total // 2
