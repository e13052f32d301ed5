"""Many picture files become pixels, in order, decoded side by side in processes of their own."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from queue import Empty, SimpleQueue

from crnr_cli.errors import SampleError
from crnr_cli.images import Form, Pixels

Answer = Pixels | SampleError

CHUNK = 16  # pictures a request: few enough to share work evenly, enough to keep a decoder busy
CHUNKS_AHEAD = 32  # decoded and waiting, at most: what bounds the memory
SECONDS_A_PICTURE = 30.0  # a decoder silent for longer is hung
# -P: the folder we are called in may hold a stranger's json.py.
COMMAND = (sys.executable, "-P", "-m", "crnr_cli.decoder_process")


def available_cores() -> int:
    """The cores this process may use: its affinity and its cgroup's quota, not the machine's count."""
    cores = len(os.sched_getaffinity(0))
    with contextlib.suppress(OSError, ValueError):  # no cgroup, or no quota ("max")
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        cores = min(cores, max(1, int(quota) // int(period)))
    return cores


def decode(paths: Sequence[str], form: Form, jobs: int) -> Generator[Answer]:
    """The pixels of every path, or why there are none, in the order given."""
    decoders = _Decoders(form)
    waiting: deque[Future[list[Answer]]] = deque()
    threads = ThreadPoolExecutor(jobs)
    try:
        for start in range(0, len(paths), CHUNK):
            waiting.append(threads.submit(decoders.answers, paths[start : start + CHUNK]))
            if len(waiting) > CHUNKS_AHEAD:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()
    finally:
        decoders.stop()
        threads.shutdown(cancel_futures=True)
        decoders.close()


class _Decoders:
    """Decoder processes, each used by one thread of ours at a time, and a thread that ends hung ones."""

    def __init__(self, form: Form) -> None:
        self._form = form
        self._idle: SimpleQueue[_Decoder] = SimpleQueue()
        self._all: list[_Decoder] = []
        self._closed = threading.Event()
        self._watchdog = threading.Thread(target=self._end_hung_decoders, daemon=True)
        self._watchdog.start()

    def answers(self, paths: Sequence[str]) -> list[Answer]:
        try:
            decoder = self._idle.get_nowait()
        except Empty:
            decoder = self._started()
        answers: list[Answer] = []
        while len(answers) < len(paths) and not self._closed.is_set():
            decoder.ask(paths[len(answers) :])
            answers += decoder.answers(len(paths) - len(answers))
            if len(answers) < len(paths) and not self._closed.is_set():
                # It died, and of the first picture that it has not answered.
                answers.append(SampleError("decode_error", decoder.last_words()))
                decoder = self._started()
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
        decoder = _Decoder(self._form)
        self._all.append(decoder)
        return decoder

    def _end_hung_decoders(self) -> None:
        while not self._closed.wait(SECONDS_A_PICTURE / 10):
            for decoder in list(self._all):
                decoder.end_if_hung()


class _Decoder:
    """One decoder process. See `decoder_process` for what is said."""

    def __init__(self, form: Form) -> None:
        command = [*COMMAND, json.dumps(asdict(form))]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._replies = self._process.stdin, self._process.stdout
        self._heard: float | None = None  # when it last answered; None while nothing is asked of it
        self._hung = False
        if not self._replies.readline():
            self.end()
            self.close()
            raise RuntimeError(f"the decoder process does not start: {' '.join(command)}")

    def ask(self, paths: Sequence[str]) -> None:
        self._heard = time.monotonic()
        with contextlib.suppress(BrokenPipeError):  # dead already: no answer will come
            self._requests.write(json.dumps(list(paths)).encode() + b"\n")
            self._requests.flush()

    def answers(self, count: int) -> Iterator[Answer]:
        """The next `count` answers, or fewer if the process is no more."""
        for _ in range(count):
            line = self._replies.readline()
            if not line.endswith(b"\n"):
                return
            reply = json.loads(line)
            self._heard = time.monotonic()
            if "status" in reply:
                yield SampleError(**reply)
                continue
            size = reply.pop("bytes")
            data = self._replies.read(size)
            if len(data) < size:
                return
            yield Pixels(**reply, data=data)
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
