"""A pool of processes that decode many image files in parallel, and return them in order."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue

from crnr_cli.errors import DataError, SampleError
from crnr_cli.images.pixels import TOO_MUCH_MEMORY, PixelRequest, Pixels
from crnr_cli.images.regions import end_of_image
from crnr_cli.system import spares
from crnr_cli.system.child import NO_WINDOW, Guard, crash_reason, polling_interval, python_command
from crnr_cli.system.cores import available_cores, run_side_by_side
from crnr_cli.system.signals import ignoring_broken_pipes

Decoded = Pixels | SampleError

_SECONDS_PER_CHUNK = 0.05  # of work requested at once: keeps a decoder busy, and shares work evenly
MAX_PER_CHUNK = 128
CHUNKS_AHEAD = 8  # the maximum number of chunks decoded in advance; it limits the memory
_BUFFER = 2**18  # bytes
ATTEMPTS = 5  # to start a decoder
SECONDS_PER_IMAGE = 30.0  # a decoder silent for longer is considered hung
COMMAND = tuple(python_command("crnr_cli.images.decoder_process"))


class DecoderPool:
    """Starts decoder processes and hands images to them, at most `jobs` at a time."""

    def __init__(
        self,
        jobs: int | None = None,
        *,
        command: Sequence[str] | None = None,
        seconds_per_image: float | None = None,
    ) -> None:
        self.jobs = jobs or available_cores()
        self.command = tuple(command or COMMAND)
        self.seconds_per_image = seconds_per_image or SECONDS_PER_IMAGE

    def start_early(self) -> None:
        """Start a decoder before the request is known, while the caller is still importing libraries."""
        spares.put(spares.take(_Decoder, self.command) or _Decoder(self.command))

    def decode(self, paths: Sequence[str], request: PixelRequest) -> Generator[Decoded]:
        """Yield the pixels of every path, or the error, in the given order."""
        decoders = _Decoders(self, request)
        decoded = run_side_by_side(decoders.decode, decoders.chunks(paths), self.jobs, CHUNKS_AHEAD)
        missing = len(paths)
        try:
            for chunk in decoded:
                missing -= len(chunk)
                if not missing:  # here, as a caller that counts its images does not continue after the last
                    decoders.keep_idle()
                yield from chunk
        finally:
            decoders.stop()
            decoded.close()
            decoders.close()


class _Decoders:
    """The decoders of one request, each used by one thread at a time, and a thread that kills hung ones."""

    def __init__(self, pool: DecoderPool, request: PixelRequest) -> None:
        self._pool, self._request = pool, request
        self._pace = _SECONDS_PER_CHUNK / 16  # seconds per image, as last measured
        self._idle: SimpleQueue[_Decoder] = SimpleQueue()
        self._all: list[_Decoder] = []
        self._closed = threading.Event()
        self._watchdog = threading.Thread(target=self._kill_hung_decoders, daemon=True)
        self._watchdog.start()

    def chunks(self, paths: Sequence[str]) -> Iterator[Sequence[str]]:
        """Yield parts of `paths` that each take about _SECONDS_PER_CHUNK to decode."""
        start = 0
        while start < len(paths):
            count = int(max(1, min(MAX_PER_CHUNK, _SECONDS_PER_CHUNK / self._pace)))
            stop = start + count
            if stop < len(paths) and "#" in paths[stop]:  # do not divide an image with several regions
                stop = end_of_image(paths, start, stop, start + MAX_PER_CHUNK)
            yield paths[start:stop]
            start = stop

    def decode(self, paths: Sequence[str]) -> list[Decoded]:
        started = time.monotonic()
        decoded = self._decode_chunk(paths)
        self._pace = max(1e-6, (time.monotonic() - started) / len(paths))
        return decoded

    def _decode_chunk(self, paths: Sequence[str]) -> list[Decoded]:
        if self._closed.is_set():  # the results are no longer needed
            return []
        try:
            decoder = self._idle.get_nowait()
        except Empty:
            decoder = self._start_decoder()
        decoded = list(decoder.decode(paths))
        alive = len(decoded) == len(paths)
        # If not alive, the process died before it sent all replies. Request the rest one at a time, to find
        # the image that kills it.
        for path in paths[len(decoded) :]:
            if self._closed.is_set():  # it was killed by stop()
                break
            if not alive:
                decoder = self._start_decoder()
            one = list(decoder.decode([path]))
            alive = bool(one)
            decoded += one or [decoder.cause_of_death()]
        if alive:
            self._idle.put(decoder)
        return decoded

    def keep_idle(self) -> None:
        """Leave the decoders to the next request, as this one needs them no longer."""
        while not self._idle.empty():
            decoder = self._idle.get()
            self._all.remove(decoder)
            spares.put(decoder)

    def stop(self) -> None:
        """Kill the processes, so that no thread waits for a reply any longer."""
        self._closed.set()
        for decoder in list(self._all):
            decoder.kill()

    def close(self) -> None:
        for decoder in self._all:
            decoder.end()
        self._watchdog.join()

    def _start_decoder(self) -> _Decoder:
        for attempt in range(1, ATTEMPTS + 1):
            decoder = spares.take(_Decoder, self._pool.command) or _Decoder(self._pool.command)
            try:
                decoder.prepare(self._request, self._pool.seconds_per_image)
                break
            except DataError:  # the system may have killed it for lack of memory: try again
                if attempt == ATTEMPTS or self._closed.is_set():
                    raise
        self._all.append(decoder)
        return decoder

    def _kill_hung_decoders(self) -> None:
        while not self._closed.wait(polling_interval(self._pool.seconds_per_image / 10)):
            for decoder in list(self._all):
                decoder.kill_if_hung()
                decoder.guard.check()


class _Decoder:
    """One decoder process. `decoder_process` describes the protocol."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self.origin = spares.current_origin(command)
        self._folder = _identify_folder()
        self._process = launch(command)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._replies = self._process.stdin, self._process.stdout
        self._last_reply: float | None = None  # None while nothing is requested
        self._hung = False

    def prepare(self, request: PixelRequest, timeout: float) -> None:
        """Send the request that all paths after it are for. A process that does not accept it is ended."""
        self._timeout = timeout
        self.guard = Guard(self._process, request.most_memory)
        wanted = request._asdict()
        if (folder := _identify_folder()) != self._folder:  # it was kept from before the folder was changed
            wanted["folder"], self._folder = _find_folder(), folder
        with ignoring_broken_pipes():
            self._requests.write(json.dumps(wanted).encode() + b"\n")
            self._requests.flush()
        if not self._replies.readline():
            self.end()
            raise DataError(f"the decoder process does not start: {' '.join(self._command)}")

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def decode(self, paths: Sequence[str]) -> Iterator[Decoded]:
        """Yield one result per path, or fewer if the process dies."""
        self._last_reply = time.monotonic()
        with ignoring_broken_pipes():  # it is already dead, so there will be no reply
            self._requests.write(json.dumps(list(paths)).encode() + b"\n")
            self._requests.flush()
        received = 0
        while received < len(paths):
            line = self._replies.readline()
            if not line.endswith(b"\n"):
                return
            self._last_reply = time.monotonic()
            headers = json.loads(line)
            for header in headers:
                if isinstance(header, dict):
                    yield SampleError(**header)
                    continue
                width, height, bands, is_float, sha256, size, *date = header
                data = self._replies.read(size)
                if len(data) < size:
                    return
                yield Pixels(width, height, bands, is_float, sha256, data, *date)
            received += len(headers)
        self._last_reply = None

    def kill_if_hung(self) -> None:
        if self._last_reply is not None and time.monotonic() - self._last_reply > self._timeout:
            self._hung = True
            self._process.kill()

    def cause_of_death(self) -> SampleError:
        code = self._process.wait()
        if self.guard.is_out_of_memory:
            return SampleError("too_large", TOO_MUCH_MEMORY)
        if self._hung:
            return SampleError("decode_error", f"the decoder did not reply within {self._timeout:g} s")
        how = f"crashed ({cause})" if (cause := crash_reason(code)) else f"ended (exit {code})"
        return SampleError("decode_error", f"the decoder {how}")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        self.kill()
        with ignoring_broken_pipes():  # a buffered request that the process will not read
            self._requests.close()
        self._replies.close()


def _identify_folder() -> tuple[int, int]:
    """Identify the current folder, whatever its name is now."""
    folder = Path().stat()
    return folder.st_dev, folder.st_ino


def _find_folder() -> str:
    """Return the path of the current folder; if it is gone, one that makes a decoder end."""
    try:
        return str(Path.cwd())
    except FileNotFoundError:
        return ""


def launch(command: Sequence[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        bufsize=_BUFFER,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        creationflags=NO_WINDOW,
    )
