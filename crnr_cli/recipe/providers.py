"""Sessions of onnxruntime: on the processor or the accelerator that was chosen, and never on another one."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, NamedTuple

from crnr_cli.errors import DataError, UsageError, first_line
from crnr_cli.recipe.provider_names import AUTO, CPU, PACKAGES, PREFERRED, PROVIDERS
from crnr_cli.system.optional import require

_PER_BATCH, _PER_RUN = 32, 4  # pictures on the processor: progress is shown often, and all cores are busy
_ON_OTHERS = 128  # at once: an accelerator with memory of its own needs many to be busy


class Session(NamedTuple):
    """A model in memory."""

    run: Any  # onnxruntime's session
    provider: str  # what it runs on
    jobs: int  # the cores that it may use
    wanted: str  # the provider that was asked for, or auto


def available() -> list[str]:
    """The providers of the installed onnxruntime, the best first."""
    require("onnx", "a network", "onnxruntime")
    import onnxruntime

    found = set(onnxruntime.get_available_providers())
    names = dict.fromkeys((*PREFERRED, *PROVIDERS))
    return [name for name in names if PROVIDERS[name] in found]


def pictures_per_batch(provider: str) -> int:
    if provider == AUTO:
        provider = next(name for name in PREFERRED if name in (*available(), CPU))
    return _PER_BATCH if provider == CPU else _ON_OTHERS


def pictures_per_run(provider: str) -> int:
    return _PER_RUN if provider == CPU else _ON_OTHERS


def open_session(path: Path, jobs: int, provider: str) -> Session:
    """Load a model."""
    names = available()
    if provider != AUTO:
        if provider not in names:
            raise UsageError(
                f"--provider {provider}: the installed onnxruntime does not have it, only {', '.join(names)}"
                + (f"; install {PACKAGES[provider]} instead of it" if provider in PACKAGES else "")
            )
        run = _run_on(path, jobs, provider)
        if run is None:
            raise UsageError(
                f"--provider {provider}: onnxruntime cannot use it on this machine; is its driver installed?"
            )
        return Session(run, provider, jobs, provider)
    for name in filter(names.__contains__, PREFERRED):
        try:
            if run := _run_on(path, jobs, name):
                return Session(run, name, jobs, AUTO)
        except DataError:  # of the model, or of a provider that does not work here
            if name == CPU:
                raise
    raise DataError(f"{path}: onnxruntime cannot run it on any of {', '.join(names)}")


def _run_on(path: Path, jobs: int, provider: str) -> Any:
    """Return a session of onnxruntime, or None if it would run the model on something else."""
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    # Several runs side by side, each in one thread, never wait for each other, as the threads of one run do
    # after every layer: for those that lost their core to a decoder. The numbers are the same for any --jobs.
    settings.intra_op_num_threads = 1 if provider == CPU else jobs
    settings.inter_op_num_threads = 1
    # A thread that waits gives its core away at once: on a busy machine the others may take long.
    settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
    settings.log_severity_level = 4  # errors are raised as exceptions
    # Where a provider lacks an operator, the processor computes it.
    wanted = list(dict.fromkeys((PROVIDERS[provider], PROVIDERS[CPU])))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it uses something else, which is checked here
            session = onnxruntime.InferenceSession(path, settings, providers=wanted)
    except Exception as e:  # onnxruntime's exceptions have no public base class
        raise DataError(f"{path}: not a model that onnxruntime can open ({first_line(e)})") from e
    if session.get_providers()[0] != PROVIDERS[provider]:
        return None
    session.disable_fallback()  # nor later, when a run fails
    return session
