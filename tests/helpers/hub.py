"""An imitation of the Hugging Face hub on this machine, with a server for large files, and tiny networks."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
from onnx import helper, numpy_helper

from crnr_cli.models.catalog import MODELS
from helpers.onnx_models import PIXEL_VALUES, save_model

# The outputs of the exports, with their features per image or token. Only those of the networks in the
# catalogue are the features that it promises.
_TOKENS = "last_hidden_state"
OUTPUTS = {
    "dinov2-small": {_TOKENS: 384},
    "dinov2-base": {_TOKENS: 768, "pooler_output": 768},
    "clip-b32": {"image_embeds": 512, _TOKENS: 768},
    "clip-b16": {_TOKENS: 768, "pooler_output": 768, "image_embeds": 512},
    "siglip-b16": {_TOKENS: 768, "pooler_output": 768},
    "mobileclip-s2": {"image_embeds": 512},
}
_CLIP_SCALE = {
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}
CONFIGS: dict[str, dict[str, Any]] = {
    "dinov2": {
        **{"image_processor_type": "BitImageProcessor", "do_resize": True, "resample": 3},
        **{"size": {"shortest_edge": 256}, "crop_size": {"height": 224, "width": 224}},
        **{"do_center_crop": True, "do_normalize": True, "do_rescale": True, "rescale_factor": 1 / 255},
        **{"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]},
    },
    "clip": {
        **{"feature_extractor_type": "CLIPFeatureExtractor", "size": 224, "crop_size": 224, "resample": 3},
        **{"do_resize": True, "do_center_crop": True, "do_normalize": True, **_CLIP_SCALE},
    },
    "siglip": {
        **{"image_processor_type": "SiglipImageProcessor", "size": {"height": 224, "width": 224}},
        **{"do_resize": True, "do_normalize": True, "resample": 3},
        **{"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]},
    },
    "mobileclip": {
        **{"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 256}, "resample": 2},
        **{"crop_size": {"height": 256, "width": 256}, "do_center_crop": True, "do_normalize": False},
    },
}
_LARGE = ".onnx"  # files of this kind are large ones, which another server has
_RANGE = re.compile(r"bytes=(\d+)-")


def make_export(path: Path, outputs: dict[str, int]) -> bytes:
    """Return an export with these outputs; its values are means of the image's channels."""
    nodes = [
        helper.make_node("GlobalAveragePool", ["pixel_values"], ["mean"]),
        helper.make_node("Flatten", ["mean"], ["vector"]),
        helper.make_node("AveragePool", ["pixel_values"], ["maps"], kernel_shape=[32] * 2, strides=[32] * 2),
        helper.make_node("Constant", [], ["as_tokens"], value_ints=[0, 3, -1]),
        helper.make_node("Reshape", ["maps", "as_tokens"], ["by_feature"]),
        helper.make_node("Transpose", ["by_feature"], ["tokens"], perm=[0, 2, 1]),
    ]
    for name, count in outputs.items():
        weights = np.arange(3 * count, dtype=np.float32).reshape(3, count) % 7
        tensor = numpy_helper.from_array(weights)
        given = "tokens" if name == _TOKENS else "vector"
        nodes.append(helper.make_node("Constant", [], [f"{name}_weights"], value=tensor))
        nodes.append(helper.make_node("MatMul", [given, f"{name}_weights"], [name]))
    shapes = {
        name: ["batch_size", *(["sequence_length"] if name == _TOKENS else []), count]
        for name, count in outputs.items()
    }
    return save_model(path, nodes, {"pixel_values": PIXEL_VALUES}, shapes).read_bytes()


def repository_files(name: str, folder: Path) -> dict[str, bytes]:
    """Return the files of an imitated repository of a network in the catalogue, some of them unwanted."""
    model = MODELS[name]
    assert model.repository is not None
    config = json.dumps(CONFIGS[model.preset]).encode()
    return {
        ".gitattributes": b"*.onnx filter=lfs diff=lfs merge=lfs -text\n",
        "LICENSE": f"The licence of {name}.\n".encode(),
        "README.md": b"---\nlicense: other\n---\n",
        "config.json": b"{}",
        "model.py": b"raise SystemExit\n",
        model.repository.file: make_export(folder / "export.onnx", OUTPUTS[name]),
        "onnx/model_quantized.onnx": b"unwanted",
        "preprocessor_config.json": config,
    }


def git_sha1(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@dataclass
class Hub:
    """The imitated repositories, and the faults of the servers."""

    repositories: dict[str, dict[str, bytes]] = field(default_factory=dict)
    commits: dict[str, str] = field(default_factory=dict)
    cuts: list[int] = field(default_factory=list)  # the next transfers of large files end after so many bytes
    sent: dict[str, bytes] = field(default_factory=dict)  # other contents than the promised, by file
    missing: set[str] = field(default_factory=set)  # files that are listed, but not there
    status: tuple[int, str] | None = None  # of every answer, with X-Error-Code
    ignores_ranges: bool = False
    requests: list[str] = field(default_factory=list)  # "GET /path" or "GET /path from 100"
    storage: str = ""  # the address of the server for large files
    address: str = ""

    def add(self, name: str, files: dict[str, bytes]) -> str:
        """Add a repository, or a commit to it; return the commit."""
        self.repositories[name] = files
        self.commits[name] = hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()
        return self.commits[name]

    def describe(self, name: str) -> dict[str, Any]:
        siblings = [
            {
                "rfilename": file,
                "size": len(content),
                "blobId": git_sha1(content),
                **({"lfs": _lfs(content)} if file.endswith(_LARGE) else {}),
            }
            for file, content in self.repositories[name].items()
        ]
        facts = {"id": name, "modelId": name, "private": False, "downloads": 0, "likes": 0, "tags": []}
        return {**facts, "sha": self.commits[name], "siblings": siblings}


def _lfs(content: bytes) -> dict[str, Any]:
    return {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 130}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, format: str, *arguments: object) -> None:
        """Print nothing."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        start = _RANGE.fullmatch(self.headers.get("Range", ""))
        self.hub.requests.append(f"{self.command} {path}" + (f" from {start[1]}" if start else ""))
        if self.hub.status:
            self._send(self.hub.status[0], {"X-Error-Code": self.hub.status[1]})
        elif path.startswith("/api/models/"):
            self._describe(path.removeprefix("/api/models/"))
        elif path.startswith("/large/"):
            self._send_large(path.removeprefix("/large/"), int(start[1]) if start else 0)
        else:
            self._resolve(path.strip("/"))

    def _describe(self, path: str) -> None:
        name, _, revision = path.partition("/revision/")
        if name not in self.hub.repositories:
            self._send(404, {"X-Error-Code": "RepoNotFound"})
        elif revision not in ("", "main", self.hub.commits[name]):
            self._send(404, {"X-Error-Code": "RevisionNotFound"})
        else:
            facts = json.dumps(self.hub.describe(name)).encode()
            self._send(200, {"Content-Type": "application/json"}, facts)

    def _resolve(self, path: str) -> None:
        name, _, rest = path.partition("/resolve/")
        file = rest.partition("/")[2]
        files = self.hub.repositories.get(name, {})
        if file not in files or file in self.hub.missing:
            self._send(404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": self.hub.commits[name]})
            return
        content, commit = files[file], {"X-Repo-Commit": self.hub.commits[name]}
        if file.endswith(_LARGE):
            tag = hashlib.sha256(content).hexdigest()
            linked = {"X-Linked-Etag": f'"{tag}"', "X-Linked-Size": str(len(content))}
            place = {"Location": f"{self.hub.storage}/large/{name}/{file}"}
            self._send(302, commit | linked | place)
        else:
            found = self.hub.sent.get(file, content)
            self._send(200, commit | {"ETag": f'"{git_sha1(content)}"'}, found)

    def _send_large(self, path: str, start: int) -> None:
        owner, name, file = path.split("/", 2)
        content = self.hub.sent.get(file, self.hub.repositories[f"{owner}/{name}"][file])
        if self.hub.ignores_ranges:
            start = 0
        end = self.hub.cuts.pop(0) if self.hub.cuts else len(content)
        extent = {"Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"} if start else {}
        self._send(206 if start else 200, extent, content[start:end], len(content) - start)

    def _send(
        self, status: int, headers: dict[str, str], body: bytes = b"", length: int | None = None
    ) -> None:
        """Send an answer; if `length` is more than the body has, the connection breaks."""
        length = len(body) if length is None else length
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(length)}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)
            self.close_connection = self.close_connection or len(body) < length


@contextmanager
def imitated_hub() -> Iterator[Hub]:
    """Run the hub and the server for large files until the block ends."""
    hub = Hub()
    handler = type("Handler", (_Handler,), {"hub": hub})
    servers = [ThreadingHTTPServer(("127.0.0.1", 0), handler) for _ in range(2)]
    threads = [threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True) for server in servers]
    # By another name: huggingface_hub stops at a redirect to another host, which has no facts about the file.
    hub.address = f"http://127.0.0.1:{servers[0].server_port}"
    hub.storage = f"http://localhost:{servers[1].server_port}"
    try:
        for thread in threads:
            thread.start()
        yield hub
    finally:
        for server, thread in zip(servers, threads, strict=True):
            server.shutdown()
            thread.join()
            server.server_close()
