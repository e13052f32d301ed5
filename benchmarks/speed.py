"""Speed, relative to the machine's own limit and to programs that do the same: ratios within one run.

python benchmarks/speed.py [coding ar build faces csv images gradients photographs start ...] [--json]

Every ratio is of two times measured in this run on this machine. Coding is measured as classify does it,
batches side by side, each product on one thread; what it is compared with has all threads for every product.
The data is not part of the project: --data names the folder that holds it. What is not there is skipped, and
the skip is said.
"""

from __future__ import annotations

import compileall
import json as json_module
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from typing import Annotated, TypeVar

import datasets
import numpy as np
import typer
from PIL import Image
from rich.console import Console
from rich.table import Table

import crnr_cli
from crnr_cli.arrays import Batch, to_dense
from crnr_cli.images.decode import read_pixels
from crnr_cli.images.pixels import PixelRequest
from crnr_cli.methods import Method, Samples, batch_size, make_method
from crnr_cli.recipe.gradients import Gradients
from crnr_cli.recipe.recipe import Recipe
from crnr_cli.recipe.steps import Pca
from crnr_cli.results.decision import Answers
from crnr_cli.results.table import CsvFormatter
from crnr_cli.solvers.admm import admm, class_residuals
from crnr_cli.solvers.factors import factorize_low_rank, multiplications
from crnr_cli.system.cores import available_cores, run_side_by_side, use_cores

CRNR = [sys.executable, "-m", "crnr_cli"]
Result = TypeVar("Result")


@dataclass(frozen=True)
class Figure:
    what: str
    ours: str
    against: str
    ratio: float
    demand: str
    met: bool


def best(work: Callable[[], object], times: int = 3) -> float:
    """The minimum of several times: what the work takes when nothing else disturbs it."""
    return min(seconds(work) for _ in range(times))


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def in_turns(*timers: Callable[[], float], rounds: int = 3) -> list[float]:
    """The minimum time of each, measured in turns, as the speed of a machine varies from minute to minute."""
    times = [[timer() for timer in timers] for _ in range(rounds)]
    return [min(of_one) for of_one in zip(*times, strict=True)]


def apart(work: Callable[..., Result], *arguments: object, side_by_side: bool) -> Result:
    """work(*arguments) in a process of its own, where products use one thread, as in classify, or all."""
    environment = dict(os.environ)
    use_cores(available_cores(), side_by_side=side_by_side)
    try:
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            return pool.submit(work, *arguments).result()
    finally:
        os.environ.clear()
        os.environ.update(environment)


def at_least(what: str, ours: str, against: str, ratio: float, least: float) -> Figure:
    return Figure(what, ours, against, ratio, f">= {least:g}", ratio >= least)


def measured(what: str, ours: str, against: str, ratio: float) -> Figure:
    """A figure without a demand: it says as much about the machine as about the program."""
    return Figure(what, ours, against, ratio, "", True)


def at_most(what: str, ours: str, against: str, ratio: float, most: float) -> Figure:
    return Figure(what, ours, against, ratio, f"<= {most:g}", ratio <= most)


def unit_rows(raw: np.ndarray, dtype: str) -> np.ndarray:
    return Recipe(raw.shape[1]).unit_vectors(raw, dtype)[0]


def plain_loop(
    X: np.ndarray, edges: np.ndarray, Y: np.ndarray, lam: float, mu: float, inverse: np.ndarray
) -> list[int]:
    """What the authors' program does, query by query: five matrix-vector products and K residuals."""
    labels = []
    for y in Y.T:
        z = delta = np.zeros(X.shape[1])
        Xy = (1 + lam) * (X.T @ y)
        for _ in range(5):
            c = inverse @ (Xy + (mu * z + delta) / 2)
            z = np.maximum(0, c - delta / mu)
            delta = delta + mu * (z - c)
        residuals = [np.linalg.norm(y - X[:, start:stop] @ c[start:stop]) for start, stop in pairwise(edges)]
        labels.append(int(np.argmin(residuals)))
    return labels


def dense_inverse(X: np.ndarray, edges: np.ndarray, lam: float, mu: float) -> np.ndarray:
    Q = X.T @ X
    for start, stop in pairwise(edges):
        Q[start:stop, start:stop] *= 1 + lam
    Q[np.diag_indices_from(Q)] += mu / 2
    return np.linalg.inv(Q)


@dataclass(frozen=True)
class Task:
    """Queries to be answered by a gallery."""

    samples: Samples
    method: Method
    state: dict[str, np.ndarray]
    queries: np.ndarray

    @classmethod
    def of(cls, samples: Samples, lam: float, queries: np.ndarray) -> Task:
        method = make_method("crnr", {"lam": lam})
        return cls(samples, method, method.fit(samples), queries)

    def multiplications(self) -> int:
        """To code a query and take its residuals.

        The form's own count, for the dimensions that it works in: those that are zero in all samples are out.
        """
        n, d = self.samples.vectors.shape
        if "E" in self.state:
            coding = multiplications("low-rank", self.samples.edges, self.state["E"].shape[1], 0.1, 5)
        else:
            coding = multiplications("dense", self.samples.edges, d, 0.1, 5)
        return int(coding) + int(n * d)

    def batches(self) -> Iterator[tuple[Task, np.ndarray]]:
        size = batch_size(len(self.samples.vectors))
        for start in range(0, len(self.queries), size):
            yield self, self.queries[start : start + size]


def classify_all(*tasks: Task) -> np.ndarray:
    """The classes of all queries of each task, with batches side by side as in classify."""

    def classes(work: tuple[Task, np.ndarray]) -> np.ndarray:
        task, batch = work
        residuals = to_dense(task.method.residuals(task.samples, task.state, batch))
        return np.asarray(residuals.argmin(axis=1))

    batches = chain.from_iterable(task.batches() for task in tasks)
    return np.concatenate(list(run_side_by_side(classes, batches, available_cores())))


def coding_seconds(split: datasets.Split, per_class: int, dtype: str) -> float:
    """Seconds to code the test part, whose unit vectors are made before."""
    samples = Samples(unit_rows(split.train, dtype), np.arange(0, len(split.train) + 1, per_class))
    task = Task.of(samples, 0.1, unit_rows(split.test, dtype))
    return best(lambda: classify_all(task))


def coding(data: Path) -> list[Figure]:
    """Coding and residuals, MNIST 500 per class, as a share of the machine's own matrix product."""
    n_queries = 4000
    split = datasets.draw(datasets.mnist(data), 500, 0)
    split = replace(split, test=split.test[:n_queries])
    A = np.random.default_rng(0).random((2000, 2000))
    B = A.astype(np.float32)
    single, sgemm, double, dgemm = in_turns(
        lambda: apart(coding_seconds, split, 500, "float32", side_by_side=True),
        lambda: best(lambda: B @ B, 10),
        lambda: apart(coding_seconds, split, 500, "float64", side_by_side=True),
        lambda: best(lambda: A @ A, 10),
    )
    edges = np.arange(0, 5001, 500)
    task = Task.of(Samples(unit_rows(split.train, "float32"), edges), 0.1, split.test)
    figures = []
    for dtype, name, taken, product in (
        ("float32", "sgemm", single, sgemm),
        ("float64", "dgemm", double, dgemm),
    ):
        rate, limit = 2 * n_queries * task.multiplications() / taken, 2 * 2000**3 / product
        figures.append(
            at_least(
                f"coding + residuals, MNIST 500 per class, {dtype}",
                f"{rate / 1e9:.0f} GFLOP/s, {1e3 * taken / n_queries:.3f} ms per query",
                f"{name} {limit / 1e9:.0f} GFLOP/s",
                rate / limit,
                0.8,
            )
        )
    return figures


def build(data: Path) -> list[Figure]:
    """The factor, MNIST 500 per class."""
    split = datasets.draw(datasets.mnist(data), 500, 0)
    edges = np.arange(0, 5001, 500)
    samples = Samples(unit_rows(split.train, "float32"), edges)
    X = samples.vectors.T.astype(np.float64)
    ours = best(lambda: make_method("crnr", {"lam": 0.1}).fit(samples))
    dense = seconds(lambda: dense_inverse(X, edges, 0.1, 0.1))
    return [
        at_least(
            "build, MNIST 500 per class", f"{ours:.2f} s", f"dense inverse, {dense:.2f} s", dense / ours, 5
        )
    ]


AR_SETTINGS = ((300, 1e-3), (120, 1e-2), (54, 1e-3))  # dimensions, the largest first, and the paper's lam


def ar(data: Path) -> list[Figure]:
    """The authors' AR demo, all three dimensions, from the .mat file to accuracy."""
    assert apart(our_ar_demo, data, side_by_side=True) == plain_ar_demo(data)
    ours, plain = in_turns(
        lambda: apart(our_ar_seconds, data, side_by_side=True),
        lambda: best(lambda: plain_ar_demo(data)),
    )
    return [
        measured("AR demo, three dimensions", f"{ours:.2f} s", f"plain loop, {plain:.2f} s", plain / ours)
    ]


def our_ar_seconds(data: Path) -> float:
    return best(lambda: our_ar_demo(data))


def our_ar_demo(data: Path) -> list[float]:
    """All images are projected once: fewer dimensions are the leading ones of the most."""
    split = datasets.ar(data)
    order = np.argsort(split.train_labels, kind="stable")
    train, labels = split.train[order], split.train_labels[order]
    largest = Pca(max(dimension for dimension, _ in AR_SETTINGS))
    recipe = Recipe(train.shape[1], steps=(largest,)).fit(train, labels)

    def projected(raw: np.ndarray) -> np.ndarray:
        return recipe.unit_vectors(raw, "float32")[0]

    cores = available_cores()
    projections = list(run_side_by_side(projected, (train, split.test), cores))

    def fitted(setting: tuple[int, float]) -> Task:
        dimension, lam = setting
        vectors, queries = (unit_rows(rows[:, :dimension], "float32") for rows in projections)
        return Task.of(Samples.of(vectors, labels), lam, queries)

    classes = classify_all(*run_side_by_side(fitted, AR_SETTINGS, cores))
    correct = classes.reshape(len(AR_SETTINGS), -1) == split.test_labels
    return [float(share) for share in correct.mean(axis=1)]


def plain_ar_demo(data: Path) -> list[float]:
    """As the authors' program does it: PCA again for every dimension, and the plain loop."""
    split = datasets.ar(data)
    order = np.argsort(split.train_labels, kind="stable")
    train, test, labels = split.train[order].T.astype(float), split.test.T.astype(float), split.train_labels
    edges = np.concatenate([[0], np.cumsum(np.bincount(labels))])
    accuracies = []
    for dimension, lam in AR_SETTINGS:
        centred = train - train.mean(axis=1, keepdims=True)
        variances, weights = np.linalg.eigh(centred.T @ centred)
        axes = (centred @ weights[:, -dimension:]) / np.sqrt(variances[-dimension:])
        X, Y = axes.T @ train, axes.T @ test
        X, Y = X / np.linalg.norm(X, axis=0), Y / np.linalg.norm(Y, axis=0)
        classes = plain_loop(X, edges, Y, lam, 0.1, dense_inverse(X, edges, lam, 0.1))
        accuracies.append(float(np.mean(classes == split.test_labels)))
    return accuracies


def faces(data: Path) -> list[Figure]:
    """Many small classes: the loop over classes, in the residuals, against the products of the coding."""
    figures = []
    for n_classes in (100, 300, 1000):
        loop, coded = apart(loop_and_coding_milliseconds, n_classes, side_by_side=True)
        figures.append(
            at_most(
                f"the loop over {n_classes} classes of 7",
                f"{loop:.3f} ms per query",
                f"the products of the coding, {coded:.3f} ms",
                loop / coded,
                1,
            )
        )
    return figures


def loop_and_coding_milliseconds(n_classes: int) -> tuple[float, float]:
    """Milliseconds per query, on one core."""
    rng = np.random.default_rng(0)
    n_queries = batch_size(7 * n_classes)
    X = unit_rows(rng.standard_normal((7 * n_classes, 300)), "float32").T
    Y = np.ascontiguousarray(unit_rows(rng.standard_normal((n_queries, 300)), "float32").T)
    edges = np.arange(0, 7 * n_classes + 1, 7)
    factor = factorize_low_rank(X, edges, 0.01, 0.1)
    c = admm(factor, Y, 5).c
    coded = best(lambda: admm(factor, Y, 5), 5)
    loop = best(lambda: class_residuals(X, edges, c, Y), 5)
    return 1e3 * loop / n_queries, 1e3 * coded / n_queries


def csv(data: Path) -> list[Figure]:
    """Writing the wide CSV of 1,000 classes against coding the same queries."""
    n_queries = 2048
    rng = np.random.default_rng(0)
    numbers = (rng.standard_normal((count, 512)).astype(np.float32) for count in (7000, n_queries))
    split = datasets.Split(next(numbers), np.empty(0), next(numbers), np.empty(0))
    coded = apart(coding_seconds, split, 7, "float32", side_by_side=True)
    names = [f"person {i:04}" for i in range(1000)]
    residuals = rng.random((n_queries, 1000), np.float32)
    paths = [f"q/{i}.png" for i in range(n_queries)]
    batch = Batch(paths, [None] * n_queries, np.empty((n_queries, 0)), n_queries)
    answers = Answers(batch, residuals, [None] * n_queries)

    def write(top: int | None) -> None:
        CsvFormatter(names, "float32", top).format(answers)

    figures = []
    for top, most in ((None, 1.0), (5, 0.1)):
        written = best(partial(write, top))
        figures.append(
            at_most(
                f"writing rows of {'1,000 residuals' if top is None else f'--top {top}'}",
                f"{1e3 * written / n_queries:.3f} ms per row",
                f"coding it on all cores, {1e3 * coded / n_queries:.3f} ms",
                written / coded,
                most,
            )
        )
    return figures


MANY_FILES = 100_000
COUNTS = (1, 2_000, 20_000, MANY_FILES)


def images(data: Path) -> list[Figure]:
    """100,000 small PNG files to a CSV, start included, and its memory."""
    split = datasets.mnist(data)
    drawn = datasets.draw(split, 50, 0)
    queries = np.concatenate([split.train, np.roll(split.train, 1, axis=1)])[:MANY_FILES]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _save_digits(folder, drawn, queries)
        for extractor in ("pixels", "gradients"):
            options = ["--lam", "0.1", "--extractor", extractor, "-o", f"{extractor}.h5"]
            subprocess.run([*CRNR, "build", "-q", "gallery", *options], cwd=folder, check=True)
        peaks: dict[int, list[int]] = {count: [] for count in COUNTS}

        def classify(count: int, extractor: str = "pixels") -> float:
            options = ["-g", f"{extractor}.h5", "-o", f"{count}.csv"]
            taken, peak = _run(["classify", "-q", str(count), *options], folder)
            if extractor == "pixels":
                peaks[count].append(peak)
            return taken

        paths = sorted(str(path) for path in (folder / str(MANY_FILES)).iterdir())
        all_drawn = replace(drawn, test=queries)
        start, _, some, by_gradients, many, decoding, coded = in_turns(
            lambda: classify(1),
            lambda: classify(2_000),
            lambda: classify(20_000),
            lambda: classify(20_000, "gradients"),
            lambda: classify(MANY_FILES),
            lambda: seconds(lambda: _decode_on_all_cores(paths, PixelRequest((28, 28)))),
            lambda: apart(coding_seconds, all_drawn, 50, "float32", side_by_side=True),
        )
    return [
        at_most(
            "100,000 PNG files to a CSV",
            f"{many:.1f} s",
            f"start {start:.2f} s + decoding {decoding:.1f} s + coding {coded:.1f} s",
            many / (start + decoding + coded),
            1.25,
        ),
        measured(
            "its pace once it runs",
            f"{many - some:.1f} s for 80,000 more",
            "four fifths of decoding + coding",
            (many - some) / (0.8 * (decoding + coded)),
        ),
        at_most(
            "its peak memory",
            f"{max(peaks[20_000]) / 1e6:.0f} MB at 20,000",
            f"{max(peaks[2_000]) / 1e6:.0f} MB at 2,000",
            max(peaks[20_000]) / max(peaks[2_000]),
            1.1,
        ),
        at_most(
            "20,000 of them by gradients",
            f"{by_gradients:.1f} s",
            f"pixels, {some:.1f} s",
            by_gradients / some,
            1.5,
        ),
    ]


def _save_digits(folder: Path, drawn: datasets.Split, queries: np.ndarray) -> None:
    """gallery/DIGIT/, and a folder of queries for every count, named after it; they share their files."""
    for i, (pixels, label) in enumerate(zip(drawn.train, drawn.train_labels, strict=True)):
        (folder / "gallery" / str(label)).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.reshape(28, 28)).save(folder / "gallery" / str(label) / f"{i}.png")
    for count in COUNTS:
        (folder / str(count)).mkdir()
    for i, pixels in enumerate(queries):
        path = folder / str(MANY_FILES) / f"{i:06}.png"
        Image.fromarray(pixels.reshape(28, 28)).save(path)
        for count in COUNTS[:-1]:
            if i < count:
                (folder / str(count) / path.name).hardlink_to(path)


def gradients(data: Path) -> list[Figure]:
    """The gradients of 32 x 32 images on one core, in batches."""
    taken = apart(gradient_seconds, side_by_side=True)
    return [
        at_most("gradients of a 32 x 32 image, one core", f"{1e6 * taken:.0f} us", "100 us", 1e4 * taken, 1.0)
    ]


def gradient_seconds() -> float:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (1024, 32 * 32), dtype=np.uint8)
    extract = Gradients((32, 32), color=False, cell=4).open(1).extract
    return best(lambda: extract(images), 10) / len(images)


# A process starts with the peak memory of its parent, so a small process is put in between.
LAUNCHER = """
import resource, subprocess, sys, time
started = time.perf_counter()
code = subprocess.run(sys.argv[1:]).returncode
seconds = time.perf_counter() - started
print(seconds, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024, file=sys.stderr)
sys.exit(code)
"""


def _run(arguments: list[str], folder: Path, stdin: bytes = b"") -> tuple[float, int]:
    """Seconds and peak bytes of a command, the largest of its processes."""
    command = [sys.executable, "-c", LAUNCHER, *CRNR, *arguments]
    done = subprocess.run(command, cwd=folder, input=stdin, check=True, stderr=subprocess.PIPE)
    seconds, peak = done.stderr.split()[-2:]
    return float(seconds), int(peak)


def _decode_on_all_cores(paths: list[str], request: PixelRequest) -> None:
    with ProcessPoolExecutor(available_cores()) as pool:
        for _ in pool.map(read_pixels, paths, [request] * len(paths), chunksize=256):
            pass


def photographs(data: Path) -> list[Figure]:
    """A folder of JPEG photographs, repeated, to a CSV."""
    train = datasets.find(data, "flowers12/train")
    paths = sorted(str(path) for path in (data / "flowers12").glob("*/*/*.jpg")) * 10

    def full_size() -> None:
        for path in paths:
            with Image.open(path) as image:
                image.convert("L").resize((32, 32), Image.Resampling.BILINEAR)

    def classify(*options: str) -> float:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            build = [*CRNR, "build", "-q", str(train.resolve()), *options]
            subprocess.run(build, cwd=folder, check=True)
            taken, _ = _run(["classify", "-q", "-", "-o", "out.csv"], folder, listing)
        return taken

    listing = "\n".join(str(Path(path).resolve()) for path in paths).encode()
    alone, pixels, gradients = in_turns(
        lambda: seconds(full_size), lambda: classify("--extractor", "pixels"), classify
    )
    against = f"decoding at full size, one thread, {alone:.1f} s"
    what = f"{len(paths)} photographs to a CSV"
    return [
        at_least(f"{what}, by pixels", f"{pixels:.1f} s", against, alone / pixels, 2.5),
        measured(
            "the same by gradients, 64 x 64 in colour", f"{gradients:.1f} s", against, alone / gradients
        ),
    ]


BARE = """
import typer
app = typer.Typer()
@app.command()
def one(name: str = "x") -> None: "One."
@app.command()
def two(name: str = "x") -> None: "Two."
app()
"""


def start(data: Path) -> list[Figure]:
    """How long a command takes that does almost nothing."""

    sample = Path(__file__).parent.parent / "sample_data"
    with tempfile.TemporaryDirectory() as folder:

        def run(*command: str) -> Callable[[], float]:
            return lambda: seconds(
                lambda: subprocess.run(command, cwd=folder, check=True, capture_output=True)
            )

        run(*CRNR, "build", "-q", str((sample / "gallery").resolve()))()
        bare, ours, of_build, libraries, one, parsing = in_turns(
            run(sys.executable, "-c", BARE, "--help"),
            run(*CRNR, "--help"),
            run(*CRNR, "build", "--help"),
            run(sys.executable, "-c", "import numpy, h5py"),
            run(*CRNR, "classify", str(next((sample / "queries" / "3").iterdir()).resolve())),
            run(sys.executable, "-c", BARE, "one", "--name", "y"),
            rounds=15,
        )
    return [
        at_most("crnr --help", f"{ours * 1e3:.0f} ms", f"bare Typer, {bare * 1e3:.0f} ms", ours / bare, 1.2),
        at_most(
            "crnr build --help",
            f"{of_build * 1e3:.0f} ms",
            f"bare Typer, {bare * 1e3:.0f} ms",
            of_build / bare,
            1.5,
        ),
        at_most(
            "crnr classify of one image",
            f"{one * 1e3:.0f} ms",
            f"import of NumPy and h5py, {libraries * 1e3:.0f} ms "
            f"(a bare Typer command that does nothing: {parsing * 1e3:.0f} ms)",
            one / libraries,
            1.8,
        ),
    ]


PARTS = {
    part.__name__: part for part in (coding, build, ar, faces, csv, images, gradients, photographs, start)
}


def main(
    parts: Annotated[list[str] | None, typer.Argument(help=", ".join(PARTS), show_default="all")] = None,
    data: Annotated[Path, typer.Option(help="Folder that holds the data.")] = datasets.DEFAULT_FOLDER,
    json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    # As pip does on installation: a checkout may not be compiled yet.
    compileall.compile_dir(Path(crnr_cli.__file__).parent, quiet=2)
    figures: list[Figure] = []
    for name in parts or PARTS:
        print(f"{name}: {PARTS[name].__doc__}", file=sys.stderr)
        try:
            figures += PARTS[name](data)
        except SystemExit as skip:
            print(skip, file=sys.stderr)
    if json:
        print(json_module.dumps([asdict(figure) for figure in figures], indent=2))
        return
    table = Table()
    for column in ("what", "ours", "against"):
        table.add_column(column)
    for column in ("ratio", "demand", ""):
        table.add_column(column, justify="right")
    for f in figures:
        table.add_row(f.what, f.ours, f.against, f"{f.ratio:.2f}", f.demand, "" if f.met else "missed")
    Console(width=150 if not sys.stdout.isatty() else None).print(table)


if __name__ == "__main__":
    typer.run(main)
