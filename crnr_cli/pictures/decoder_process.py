"""A process that reads pictures for another: a decoder that crashes or hangs takes only this one along.

The first line on its stdin is the form, as JSON. It says "ready"; then a line is a JSON list of paths. They
are answered in order, some at a time: a line that is a JSON list of headers, and then the pixels of all of
them. Answers may be held back for a moment, and die with the process if a picture kills it. It ends with its
stdin.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
import time

from PIL import Image

from crnr_cli.errors import SampleError
from crnr_cli.pictures.decode import read_pixels
from crnr_cli.pictures.pixels import Form

READY = b"ready\n"
BASE_BYTES = 2**29  # of address space, for Python and Pillow themselves
SECONDS_HELD_BACK = 0.1  # small pictures go out together: to wake the reader for each is dear
BYTES_A_PIXEL = 24  # RGBA four times over, upright, on white and converted, and something to spare


# All of Pixels but the data, and how many bytes these are; or why there are none.
Header = list[int | bool | str] | dict[str, str]


def answer(path: str, form: Form) -> tuple[Header, bytes]:
    try:
        pixels = read_pixels(path, form)
    except SampleError as e:
        return {"status": e.status, "detail": e.detail}, b""
    return [*pixels[:-1], len(pixels.data)], pixels.data


def reply(answers: list[tuple[Header, bytes]]) -> bytes:
    headers, pixels = zip(*answers, strict=True)
    return json.dumps(headers).encode() + b"\n" + b"".join(pixels)


def limit_memory(form: Form) -> None:
    """A picture that is made to hurt may take this process, but not the machine."""
    limit = min(BASE_BYTES + BYTES_A_PIXEL * form.max_pixels, sys.maxsize)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(
        resource.RLIMIT_AS, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard)
    )


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which closes our stdin
    Image.preinit()  # the usual formats, while whoever started us still loads libraries
    Image.MAX_IMAGE_PIXELS = None  # the form's max_pixels rules, and answers with a status
    options = json.loads(sys.stdin.buffer.readline() or sys.exit())
    size = options.pop("size")
    form = Form(size=tuple(size) if size else None, **options)
    limit_memory(form)
    replies = sys.stdout.buffer
    replies.write(READY)
    replies.flush()
    for line in sys.stdin.buffer:
        ready: list[tuple[Header, bytes]] = []
        sent = time.monotonic()
        paths = json.loads(line)
        for i, path in enumerate(paths, 1):
            ready.append(answer(path, form))
            if i == len(paths) or time.monotonic() - sent > SECONDS_HELD_BACK:
                replies.write(reply(ready))
                replies.flush()
                ready, sent = [], time.monotonic()


if __name__ == "__main__":
    main()
