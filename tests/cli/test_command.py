"""Rules for all commands: cores, exit codes, decoders, groups of options, unwrapped text."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from crnr_cli.system import cores
from helpers.patches import watch_decoders
from helpers.runner import Runner, declared_commands, rows
from helpers.samples import make_features, make_images

SHARED = {"--features-key", "--labels-key", "--samples-axis", "--null", "--max-pixels", "--jobs"}
LABEL_TABLE = {"--labels", "--path-column", "--label-column", "--root"}
# Those that would have no effect: split takes images alone, explain one query, and verify decodes nothing.
WITHOUT = {
    "split": {"--features-key", "--labels-key", "--samples-axis"},
    "explain": {"--null"},
    "verify": {"--max-pixels", "--jobs"},
}
VECTORS = {
    *("--extractor", "--size", "--color", "--gray", "--cell", "--bins", "--block-norm"),
    "--dtype",
}
STEPS = {"power", "pca", "parts"}
NETWORK = {
    *("--extractor", "--extractor-preset", "--crop", "--filter", "--mean", "--std", "--channels", "--layout"),
    *("--extractor-output", "--pool", "--provider"),
}
STRICTNESS = {"--strict", "--max-failure-rate", "--allow-skipped"}


def options_of(command: str) -> set[str]:
    return {name for parameter in declared_commands()[command].params for name in parameter.opts}


@pytest.mark.parametrize(
    "command",
    ["build", "classify", "evaluate", "compare", "explain", "tune", "add", "audit", "verify", "split"],
)
def test_every_command_that_reads_samples_has_the_same_options(command: str) -> None:
    assert options_of(command) & SHARED == SHARED - WITHOUT.get(command, set())
    assert options_of(command) >= LABEL_TABLE
    if command in ("audit", "build", "compare", "tune"):
        steps = {f"--try-{name}" if command == "tune" else f"--{name}" for name in STEPS}
        assert options_of(command) >= VECTORS | NETWORK | steps
    if command not in ("explain", "verify"):
        assert options_of(command) >= STRICTNESS


def test_an_option_means_the_same_in_every_command() -> None:
    """Those that differ have a reason: what is written, tried, compared with, or where a network is."""
    different = {
        *("--output", "--methods"),
        "--gallery",  # which has to be named where it is changed
        *("--class", "--json", "--csv", "--corrections"),
        "--boxes",  # which export adds labels to
        "--taxa",  # which tag writes as keywords
        "--how",  # a split moves nothing
        "--limit",  # of answers, or of examples
        "--test",  # a folder to write, or queries
        "--min-probability",  # below it, answers are unknown, or files are doubtful
        "--cache",  # which review only reads
        "--update",  # which removes samples from a gallery, but never from a feature file
    }
    declared: dict[str, set[object]] = {}
    for command in declared_commands().values():
        for parameter in command.params:
            for name in parameter.opts:
                if name.startswith("--") and name not in different:
                    declared.setdefault(name, set()).add(
                        (getattr(parameter, "help", ""), str(parameter.default))
                    )
    assert {name: uses for name, uses in declared.items() if len(uses) > 1} == {}


@pytest.mark.parametrize("command", WITHOUT)
def test_an_option_without_effect_is_no_option(crnr: Runner, command: str) -> None:
    for option in WITHOUT[command]:
        outcome = crnr(command, "x", option, "1")
        assert (outcome.exit, outcome.out) == (2, "")
        assert outcome.err.startswith(f"error: no such option: {option}")


@pytest.mark.parametrize(
    "command",
    [
        *("add gallery.h5 new.npz --jobs 1", "add gallery.h5 new.npz", "remove gallery.h5 --class cow"),
        *("rename gallery.h5 cow emu", "correct gallery.h5 marked.csv"),
    ],
)
def test_commands_that_fit_divide_the_cores_too(crnr: Runner, command: str) -> None:
    """BLAS takes all cores of the machine otherwise, whatever --jobs or the container's quota say."""
    make_features(crnr.here / "gallery.npz")
    make_features(crnr.here / "new.npz", seed=1)
    (crnr.here / "marked.csv").write_text("path,corrected,remove\ngallery.npz#0,bee,\n")
    assert crnr("build", "gallery.npz", "-q").exit == 0
    code = (
        "import os, sys\n"
        "from crnr_cli.cli import main\n"
        "try: main()\n"
        "finally: sys.stderr.write(os.environ.get('OPENBLAS_NUM_THREADS', 'not set'))"
    )
    environment = {name: value for name, value in os.environ.items() if name not in cores._THREAD_VARIABLES}
    outcome = crnr.process(*command.split(), "-q", program=(sys.executable, "-c", code), env=environment)
    wanted = "1" if "--jobs" in command else str(cores.available_cores())
    assert (outcome.exit, outcome.out, outcome.err) == (0, "", wanted)


def test_skipped_inputs_make_the_exit_code_3_in_every_command(crnr: Runner) -> None:
    make_images(crnr.here / "gallery")
    make_images(crnr.here / "queries", first=10)
    for folder in ("gallery", "queries"):
        (crnr.here / folder / "ant" / "broken.png").write_bytes(b"")
    commands = [
        "build gallery",
        "tune gallery --budget 0",
        "compare gallery --methods nn --draws 1",
        "classify queries -o out.csv",
        "evaluate queries",
        "add gallery.h5 queries",
    ]
    for command in commands:
        assert crnr(*command.split(), "-q").exit == 3, command
        assert crnr(*command.split(), "-q", "--allow-skipped").exit == 0, command
        strict = crnr(*command.split(), "-q", "--strict")
        assert strict.exit == 1, command
        assert "ant/broken.png" in strict.err
        assert "stopped: 1 of " in strict.err


def test_evaluate_of_a_csv_reports_the_failures_of_another_run(crnr: Runner) -> None:
    """They were skipped by classify, with an exit code."""
    Path("out.csv").write_text("path,truth,label,status\na,x,x,ok\nb,x,,truncated\n")
    assert crnr("evaluate", "out.csv").exit == 0


def test_strictness_does_not_apply_to_a_csv(crnr: Runner) -> None:
    Path("out.csv").write_text("path,truth,label,status\na,x,x,ok\nb,x,,truncated\n")
    outcome = crnr("evaluate", "out.csv", "--strict")
    assert (outcome.exit, outcome.out) == (2, "")
    assert outcome.err == (
        "error: --strict or --max-failure-rate has no effect on the existing predictions in out.csv; "
        "leave it out\n"
    )


def test_a_missed_gate_outweighs_skipped_inputs(crnr: Runner) -> None:
    make_images(crnr.here / "gallery")
    crnr("build", "gallery", "-q")
    (crnr.here / "gallery" / "ant" / "broken.png").write_bytes(b"")
    assert crnr("evaluate", "gallery", "--min-accuracy", "1").exit == 4


@pytest.mark.parametrize("source", ["queries.npz", "images"])
def test_a_decoder_is_started_only_for_images(
    crnr: Runner, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    make_features(crnr.here / "queries.npz")
    make_images(crnr.here / "images")
    crnr("build", source, "-q")
    started = watch_decoders(monkeypatch.setattr)
    assert crnr("classify", source, "-o", "out.csv", "-q", "--jobs", 1).exit == 0
    assert len(started) == (0 if source == "queries.npz" else 1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_no_decoder_is_started_where_workers_read(crnr: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    make_images(crnr.here / "images")
    crnr("build", "images", "-q")
    started = watch_decoders(monkeypatch.setattr)
    assert crnr("classify", "images", "-o", "out.csv", "-q", "--dask", "local:1").exit == 0
    assert started == []


def test_the_batch_size_is_an_option(crnr: Runner) -> None:
    make_features(crnr.here / "gallery.npz", per_class=20)
    crnr("build", "gallery.npz", "--dtype", "float64", "-q")
    whole = crnr("classify", "gallery.npz", "-q")
    by_sevens = crnr("classify", "gallery.npz", "-q", "--batch-size", 7)
    assert (whole.exit, by_sevens.exit) == (0, 0)
    for one, other in zip(rows(whole.out), rows(by_sevens.out), strict=True):
        assert one["label"] == other["label"]
        assert float(one["residual"]) == pytest.approx(float(other["residual"]), abs=1e-12)


def test_text_in_a_pipe_is_never_wrapped(crnr: Runner) -> None:
    """On a screen of 40 columns and with long names, every line of a table and every sentence stays whole."""
    long = "a class with a name that is much longer than any screen is wide " * 2
    classes = (long.strip(), "bee", "cow")
    make_images(crnr.here / "gallery", classes)
    query = f"gallery/{classes[0]}/0.png"
    assert crnr("build", "gallery", "-q").exit == 0
    for command in (["explain", query], ["info"], ["evaluate", "gallery"]):
        narrow, wide = (crnr(*command, columns=columns) for columns in (40, 4000))
        assert (narrow.exit, wide.exit) == (0, 0)
        assert any(classes[0] in line for line in narrow.out.splitlines())
        if command[0] != "evaluate":  # which leaves out a matrix that is too wide
            stripped = [[line.rstrip() for line in each.out.splitlines()] for each in (narrow, wide)]
            assert stripped[0] == stripped[1]


def test_a_command_runs_from_a_folder_with_a_long_name(crnr: Runner, tmp_path: Path) -> None:
    here = tmp_path / ("long " * 30) / "é"
    here.mkdir(parents=True)
    make_features(here / "gallery.npz")
    elsewhere = Runner(here)
    assert elsewhere("build", here / "gallery.npz", "-q").exit == 0
    outcome = elsewhere("explain", f"{here}/gallery.npz#0", columns=80)
    assert outcome.exit == 0
    first = outcome.out.splitlines()[0]
    assert first.startswith(f"{here}/gallery.npz#0: ant by crnr (runner-up ")
    assert first.endswith("); true class ant")


def test_src_reports_queries_that_do_not_converge(crnr: Runner) -> None:
    make_features(crnr.here / "gallery.npz")
    make_features(crnr.here / "queries.npz", per_class=2, seed=1)
    crnr("build", "gallery.npz", "--method", "src", "--iterations", 1, "-q")
    few = crnr("classify", "queries.npz", "-o", "out.csv", "--batch-size", 4)
    advice = "method src stopped after 1 iteration; build with a higher --iterations or --tol"
    assert few.exit == 0
    assert few.err.splitlines()[-1] == f"warning: 6 queries did not converge: {advice}"
    assert crnr("classify", "queries.npz", "-o", "out.csv", "-q").err == ""
    crnr("build", "gallery.npz", "--method", "src", "--iterations", 5000, "--tol", 1e-3, "-q")
    assert "converge" not in crnr("classify", "queries.npz", "-o", "out.csv").err


def test_explain_counts_its_one_query_once(crnr: Runner) -> None:
    make_features(crnr.here / "gallery.npz")
    crnr("build", "gallery.npz", "--method", "src", "--iterations", 1, "-q")
    assert "warning: 1 query did not converge: " in crnr("explain", "gallery.npz#0").err
    for command in ("info", "verify", "remove gallery.h5 --class cow"):
        assert "converge" not in crnr(*command.split()).err


def test_estimators_warn_about_the_same(recwarn: pytest.WarningsRecorder) -> None:
    pytest.importorskip("sklearn")
    from crnr_cli import SRCClassifier
    from crnr_cli.errors import NotConverged

    X = np.random.default_rng(0).random((12, 5))
    fitted = SRCClassifier(iterations=1).fit(X, np.arange(12) % 3)
    with pytest.warns(
        NotConverged, match="12 queries did not converge: method src stopped after 1 iteration"
    ):
        fitted.predict(X)
