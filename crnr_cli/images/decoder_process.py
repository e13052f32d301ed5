"""A process that decodes images for its parent, so that an image that crashes or hangs it does no harm.

The first line on stdin is the request, as JSON. The process replies "ready". Each further line is a JSON list
of paths, or names of regions, or another request for the paths after it. A request names a folder if relative
paths no longer start from the one in which the process was started. The replies to paths come in the
same order, for several paths at a time: one line with a JSON list of headers, followed by the pixels of all
these images. Replies are buffered for a moment, and are lost if an image kills the process. The process ends
when its stdin is closed.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import BinaryIO

from PIL import Image

from crnr_cli.errors import SampleError
from crnr_cli.images.decode import read_pixels, read_regions
from crnr_cli.images.pixels import PixelRequest, Pixels
from crnr_cli.images.regions import group_regions
from crnr_cli.system.child import limit_address_space
from crnr_cli.system.signals import leave_to_parent

_READY = b"ready\n"
SECONDS_HELD_BACK = 0.1  # send small images in groups; waking the parent for each is slow


# [width, height, bands, is_float, sha256, n_bytes], with the date at the end if the request needs it; or
# {"status", "detail"} if there are no pixels.
Header = list[int | bool | str] | dict[str, str]


def decode_or_error(path: str, request: PixelRequest) -> tuple[Header, bytes]:
    try:
        return _reply_to_one(read_pixels(path, request))
    except SampleError as e:
        return _reply_to_one(e)


def _reply_to_one(decoded: Pixels | SampleError) -> tuple[Header, bytes]:
    if isinstance(decoded, SampleError):
        return {"status": decoded.status, "detail": decoded.detail}, b""
    date = [decoded.date] if decoded.date else []
    return [*decoded[:5], len(decoded.data), *date], decoded.data


def reply(results: list[tuple[Header, bytes]]) -> bytes:
    headers, pixels = zip(*results, strict=True)
    return json.dumps(headers).encode() + b"\n" + b"".join(pixels)


def limit_memory(request: PixelRequest) -> None:
    limit_address_space(request.most_memory)


def decode_requests() -> None:
    leave_to_parent()
    Image.preinit()  # load the usual formats now, while the parent is still importing libraries
    Image.MAX_IMAGE_PIXELS = None  # read_pixels checks max_pixels of the request instead
    replies = sys.stdout.buffer
    for line in sys.stdin.buffer:
        wanted = json.loads(line)
        if isinstance(wanted, dict):
            if "folder" in wanted:
                os.chdir(wanted.pop("folder"))
            size = wanted.pop("size")
            request = PixelRequest(size=tuple(size) if size else None, **wanted)
            limit_memory(request)
            replies.write(_READY)
            replies.flush()
        else:
            decode_paths(wanted, request, replies)


def decode_paths(paths: list[str], request: PixelRequest, replies: BinaryIO) -> None:
    ready: list[tuple[Header, bytes]] = []
    sent = time.monotonic()
    done = 0
    for path, boxes in group_regions(paths):
        if boxes:
            ready += map(_reply_to_one, read_regions(path, boxes, request))
        else:
            ready.append(decode_or_error(path, request))
        done += len(boxes) or 1
        if done == len(paths) or time.monotonic() - sent > SECONDS_HELD_BACK:
            replies.write(reply(ready))
            replies.flush()
            ready, sent = [], time.monotonic()


if __name__ == "__main__":
    decode_requests()
