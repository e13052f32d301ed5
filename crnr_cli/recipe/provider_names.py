"""What a network can run on, by the names of --provider; those of onnxruntime are longer."""

from __future__ import annotations

AUTO = "auto"
CPU = "cpu"

PROVIDERS = {
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
    "rocm": "ROCMExecutionProvider",
    "migraphx": "MIGraphXExecutionProvider",
    "directml": "DmlExecutionProvider",
    "coreml": "CoreMLExecutionProvider",
    "openvino": "OpenVINOExecutionProvider",
    "xnnpack": "XnnpackExecutionProvider",
    CPU: "CPUExecutionProvider",
}
# Those that `auto` tries, the best first. It leaves out those that prepare a model for minutes.
PREFERRED = ("cuda", "rocm", "directml", "coreml", "openvino", CPU)
# Which package has a provider, if the one that is installed does not.
PACKAGES = {
    "cuda": "onnxruntime-gpu",
    "tensorrt": "onnxruntime-gpu",
    "rocm": "onnxruntime-rocm",
    "directml": "onnxruntime-directml",
    "openvino": "onnxruntime-openvino",
}
