"""Many picture files become pixels, in order, decoded side by side in processes of their own."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from queue import Empty, SimpleQueue

from crnr_cli.errors import DataError, SampleError
from crnr_cli.pictures.pixels import Form, Pixels
from crnr_cli.system.cores import side_by_side

Answer = Pixels | SampleError

SECONDS_A_CHUNK = 0.05  # of pictures asked for at once: enough to keep a decoder busy, few to share evenly
MOST_A_CHUNK = 128
CHUNKS_AHEAD = 8  # decoded and waiting, at most: what bounds the memory
BUFFER = 2**18  # bytes
ATTEMPTS = 5  # to start a decoder
SECONDS_A_PICTURE = 30.0  # a decoder silent for longer is hung
# -P: the folder we are called in may hold a stranger's json.py.
COMMAND = (sys.executable, "-P", "-m", "crnr_cli.pictures.decoder_process")


_early: list[subprocess.Popen[bytes]] = []


@contextlib.contextmanager
def early_decoder() -> Iterator[None]:
    """Start a decoder before it is known what it will be asked, while its user loads libraries."""
    _early.append(_start())
    try:
        yield
    finally:
        while _early:  # nothing was asked of it
            _early.pop().communicate()


def _start() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        COMMAND,
        bufsize=BUFFER,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def decode(paths: Sequence[str], form: Form, jobs: int) -> Generator[Answer]:
    """The pixels of every path, or why there are none, in the order given."""
    decoders = _Decoders(form)
    decoded = side_by_side(decoders.answers, decoders.chunks(paths), jobs, CHUNKS_AHEAD)
    try:
        for answers in decoded:
            yield from answers
    finally:
        decoders.stop()
        decoded.close()
        decoders.close()


class _Decoders:
    """Decoder processes, each used by one thread of ours at a time, and a thread that ends hung ones."""

    def __init__(self, form: Form) -> None:
        self._form = form
        self._pace = SECONDS_A_CHUNK / 16  # seconds that a picture took, of late
        self._idle: SimpleQueue[_Decoder] = SimpleQueue()
        self._all: list[_Decoder] = []
        self._closed = threading.Event()
        self._watchdog = threading.Thread(target=self._end_hung_decoders, daemon=True)
        self._watchdog.start()

    def chunks(self, paths: Sequence[str]) -> Iterator[Sequence[str]]:
        """As many pictures at a time as take about so long."""
        start = 0
        while start < len(paths):
            count = int(max(1, min(MOST_A_CHUNK, SECONDS_A_CHUNK / self._pace)))
            yield paths[start : start + count]
            start += count

    def answers(self, paths: Sequence[str]) -> list[Answer]:
        started = time.monotonic()
        answers = self._answers(paths)
        self._pace = max(1e-6, (time.monotonic() - started) / len(paths))
        return answers

    def _answers(self, paths: Sequence[str]) -> list[Answer]:
        if self._closed.is_set():  # nobody waits for these any more
            return []
        try:
            decoder = self._idle.get_nowait()
        except Empty:
            decoder = self._started()
        answers = list(decoder.answers(paths))
        alive = len(answers) == len(paths)
        # If not, the answers that it held back died with it. Asked one by one, it shows by which picture.
        for path in paths[len(answers) :]:
            if self._closed.is_set():  # it was we who ended it
                break
            if not alive:
                decoder = self._started()
            answer = list(decoder.answers([path]))
            alive = bool(answer)
            answers += answer or [SampleError("decode_error", decoder.last_words())]
        if alive:
            self._idle.put(decoder)
        return answers

    def stop(self) -> None:
        """End the processes, so that no thread waits for an answer any longer."""
        self._closed.set()
        for decoder in list(self._all):
            decoder.end()

    def close(self) -> None:
        for decoder in self._all:
            decoder.end()
            decoder.close()
        self._watchdog.join()

    def _started(self) -> _Decoder:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                decoder = _Decoder(self._form)
                break
            except DataError:  # something may have killed it; where nothing can start, that is told
                if attempt == ATTEMPTS or self._closed.is_set():
                    raise
        self._all.append(decoder)
        return decoder

    def _end_hung_decoders(self) -> None:
        while not self._closed.wait(SECONDS_A_PICTURE / 10):
            for decoder in list(self._all):
                decoder.end_if_hung()


class _Decoder:
    """One decoder process. See `decoder_process` for what is said."""

    def __init__(self, form: Form) -> None:
        self._process = _early.pop() if _early else _start()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._replies = self._process.stdin, self._process.stdout
        self._heard: float | None = None  # when it last answered; None while nothing is asked of it
        self._hung = False
        with contextlib.suppress(BrokenPipeError):
            self._requests.write(json.dumps(form._asdict()).encode() + b"\n")
            self._requests.flush()
        if not self._replies.readline():
            self.end()
            self.close()
            raise DataError(f"the decoder process does not start: {' '.join(COMMAND)}")

    def answers(self, paths: Sequence[str]) -> Iterator[Answer]:
        """One for each path, or fewer if the process is no more."""
        self._heard = time.monotonic()
        with contextlib.suppress(BrokenPipeError):  # dead already: no answer will come
            self._requests.write(json.dumps(list(paths)).encode() + b"\n")
            self._requests.flush()
        answered = 0
        while answered < len(paths):
            line = self._replies.readline()
            if not line.endswith(b"\n"):
                return
            self._heard = time.monotonic()
            headers = json.loads(line)
            for header in headers:
                if isinstance(header, dict):
                    yield SampleError(**header)
                    continue
                width, height, bands, is_float, sha256, size = header
                data = self._replies.read(size)
                if len(data) < size:
                    return
                yield Pixels(width, height, bands, is_float, sha256, data)
            answered += len(headers)
        self._heard = None

    def end_if_hung(self) -> None:
        if self._heard is not None and time.monotonic() - self._heard > SECONDS_A_PICTURE:
            self._hung = True
            self._process.kill()

    def last_words(self) -> str:
        code = self._process.wait()
        if self._hung:
            return f"the decoder gave no answer in {SECONDS_A_PICTURE:g} s"
        return f"the decoder crashed (signal {-code})" if code < 0 else f"the decoder ended (exit {code})"

    def end(self) -> None:
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        with contextlib.suppress(BrokenPipeError):  # a request that nobody will read
            self._requests.close()
        self._replies.close()
