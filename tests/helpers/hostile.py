"""The kinds of files that crnr reads: how a sound one is made, damaged and opened, for benchmarks/fuzz.py."""

from __future__ import annotations

import contextlib
import io
import json
import math
import tempfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import h5py
import numpy as np
import pyarrow.parquet
from PIL import Image
from scipy.io import savemat

from crnr_cli.choices import ExtractorOptions
from crnr_cli.errors import DataError, SampleError
from crnr_cli.exports.answers import read_images
from crnr_cli.exports.base import EXPORTERS, ExportOptions, ImageHeader, exporter_of
from crnr_cli.exports.xmp import HIERARCHY, SUBJECT, SidecarError, add_keywords, make_sidecar, read_keywords
from crnr_cli.gallery.file import load_gallery
from crnr_cli.gallery.gallery import describe
from crnr_cli.gallery.queries import QueryOptions
from crnr_cli.gallery.reading import recipe_of
from crnr_cli.gallery.samples import Reading
from crnr_cli.images.decode import read_pixels
from crnr_cli.images.pixels import PixelRequest
from crnr_cli.images.pool import DecoderPool
from crnr_cli.images.regions import parse_region
from crnr_cli.jobs.build import BuildOptions, build
from crnr_cli.jobs.evaluate import evaluate
from crnr_cli.jobs.extract import ExtractOptions, extract
from crnr_cli.recipe.recipe import make_steps
from crnr_cli.results.edited import read_corrections
from crnr_cli.results.journal import resumable
from crnr_cli.results.taxa import MOST_LEVELS, BroaderClasses, read_taxa
from crnr_cli.sources.boxes import BoxOptions
from crnr_cli.sources.compact_listing import ImageFile
from crnr_cli.sources.formats import Keys, matlab_process
from crnr_cli.sources.images import Images
from crnr_cli.sources.tables import FeatureFile, open_tables
from helpers import damage
from helpers.samples import draw_image, make_features

# A decoder may take 24 bytes per pixel that a tiny file declares; so many are well below the limit of memory.
_MAX_PIXELS = 20_000_000


@dataclass(frozen=True)
class Kind:
    suffix: str
    make: Callable[[Path], object]
    open: Callable[[Path], object]
    damage: damage.Damage | None = None  # deeper than to bytes
    weight: float = 1.0  # its share of all files
    deep: float = 0.6  # the share of `damage`; bytes are changed in the others
    whole_way: Callable[[Path], object] | None = None  # if `open` is only what a process of its own does

    def made(self) -> bytes:
        """Return the bytes of a sound file, which opens."""
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            path = Path(f"whole{self.suffix}")
            self.make(path)
            self.open(path)
            return path.read_bytes()


def make_gallery(path: Path, method: str = "crnr") -> None:
    """With everything that a gallery of features can have."""
    make_features(Path("source.npz"), per_class=2, dimension=4)
    reading = Reading(jobs=1, steps=make_steps({"power": 0.5, "pca": 3}))
    build(["source.npz"], path, BuildOptions(reading, method, calibrate=True))


def open_gallery(path: Path) -> object:
    """Load, describe and answer: what info and classify do."""
    gallery = load_gallery(path)
    queries = np.ones((2, gallery.samples.vectors.shape[1]), gallery.dtype)
    residuals = gallery.residuals(queries / np.linalg.norm(queries[0]))
    assert residuals.shape == (2, len(gallery.classes))
    return describe(gallery)


def make_hdf5(path: Path, *, text: bool = False, **storage: object) -> None:
    random = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        file.create_dataset("features", data=random.random((12, 5)), **storage)
        labels = ["a", "b", "c"] * 4
        file["labels"] = labels if text else np.array(labels, "S")
        file["paths"] = np.array([f"{i}.png".encode() for i in range(12)])


def make_mat73(path: Path) -> None:
    """Write like MATLAB: HDF5 after 512 bytes, with text in cells of UTF-16."""
    with h5py.File(path, "w", userblock_size=512) as file:
        file["features"] = np.random.default_rng(0).random((5, 12))
        file["features"].attrs["MATLAB_class"] = np.bytes_("double")
        references = []
        for i, word in enumerate(["a", "b", "c"] * 4):
            cell = file.create_dataset(f"#refs#/{i}", data=np.array([[ord(word)]], np.uint16))
            cell.attrs["MATLAB_class"] = np.bytes_("char")
            references.append(cell.ref)
        labels = file.create_dataset("labels", (1, 12), h5py.ref_dtype)
        labels[0] = references
        labels.attrs["MATLAB_class"] = np.bytes_("cell")
    data = path.read_bytes()
    path.write_bytes(b"MATLAB 7.3 MAT-file".ljust(124) + b"\0\2IM" + data[128:])


def make_npz(path: Path) -> None:
    labels = np.array(["a", "b", "c"] * 4)
    np.savez(path, features=np.random.default_rng(0).random((12, 5)), labels=labels)


def make_mat(path: Path) -> None:
    labels = np.array(["a", "b", "c"] * 4, dtype=object)
    savemat(path, {"features": np.eye(12, 5), "labels": labels}, do_compression=path.stem != "plain")


def open_features(path: Path) -> object:
    """Open a table, and read it as classify does."""
    file = FeatureFile.open(path, Keys())
    values = file.read_rows(0, len(file))
    assert values.shape == (len(file.names), file.n_features)
    assert values.dtype.kind in "fiub"
    assert file.labels is None or len(file.labels) == len(values)
    return values.shape


def make_npy(path: Path) -> None:
    np.save(path, np.random.default_rng(0).random((12, 5)))


def make_npy_labels(path: Path) -> None:
    np.save(path, np.array(["a", "b", "c"] * 4))


def open_npy_labels(path: Path) -> object:
    """Open the file as the labels of sound features."""
    make_npy(path.with_name("features.npy"))
    file = FeatureFile.open(path.with_name("features.npy"), Keys(labels=path.stem))
    assert file.labels is not None
    return len(file.labels)


def make_numbers(path: Path) -> None:
    rows = [f"{i}.png,{i / 7},{i * i},-1e-{i},{'abc'[i % 3]}" for i in range(12)]
    path.write_text("\n".join(["path,u,v,w,label", *rows]) + "\n")


def make_parquet(path: Path, *, lists: bool, **storage: object) -> None:
    values = np.random.default_rng(0).random((12, 5))
    columns = {"e": list(values)} if lists else {f"f{i}": values[:, i] for i in range(5)}
    names = [f"{i}.png" for i in range(12)]
    table = pyarrow.table({"path": names, **columns, "label": ["a", "b", "c"] * 4})
    pyarrow.parquet.write_table(table, path, row_group_size=5, **storage)


def make_predictions(path: Path) -> None:
    table = {"path": ["a", "b"], "truth": ["x", "y"], "label": ["x", None], "margin": [0.5, None]}
    pyarrow.parquet.write_table(pyarrow.table({**table, "status": ["ok", "bad"]}), path)


def make_json_lines(path: Path) -> None:
    rows = [
        {"path": f"{i}", "truth": "a", "label": "ab"[i % 2], "margin": 0.5, "set": ["a"]} for i in range(5)
    ]
    path.write_text("".join(json.dumps({**row, "probability": 0.5}) + "\n" for row in rows))


def make_extracted(path: Path) -> None:
    """Write a file like `crnr extract`, with all possible datasets."""
    for name in ("ant", "bee/of/honey", "loose"):
        Path("photos", name).mkdir(parents=True)
        for number in range(2):
            draw_image(number, number, (6, 5)).save(Path("photos", name) / f"{number}.png")
    make_deep_png(Path("photos/ant/deep.png"))
    sources = ["photos/ant", "photos/bee", "photos/loose"]
    extract(sources, path, ExtractOptions(Reading(jobs=1, extractor=ExtractorOptions("pixels"))))


def open_extracted(path: Path) -> object:
    """Open it as build does, and read all facts about its rows."""
    source = open_tables([path], Keys()).with_classes(["loose"])
    recipe = recipe_of(source)
    for batch in source.read_batches(source.spans(5), None, DecoderPool(1)):
        assert len(batch.names) == len(batch.candidates) == len(batch.hashes) == len(batch.stamps)
        assert len(batch.scales) in (0, len(batch.names))
        assert batch.values.dtype.kind in "fiub"
        if recipe is not None:
            recipe.apply(recipe.drop_unusable(batch), "float32")
    return len(list(source.read_contents())), source.kind, recipe and recipe.describe()


def open_mat_here(path: Path) -> object:
    """Read a MATLAB file in this process; all exceptions become messages."""
    try:
        return matlab_process.read_variables(path, ["features", "labels", "paths"])
    except Exception as e:
        raise DataError(f"{path}: {e!r}") from e


def make_table(path: Path) -> None:
    lines = ["path,truth,label,residual,runner_up,margin,status,residual:a,residual:b"]
    for i in range(8):
        lines.append(f'"q/{i},""x"".png",a,{"ab"[i % 2]},0.25,b,0.5,ok,0.25,0.5')
    lines.append("q/bad.png,b,,,,,truncated,,")
    path.write_text("\n".join(lines) + "\n")


def open_table(path: Path) -> object:
    report = evaluate([str(path)], Path("none"), QueryOptions())
    assert 0 <= report.scores.correct <= report.scores.n
    return None


def make_corrections(path: Path) -> None:
    lines = ["path,label,corrected,when"]
    for i in range(8):
        lines.append(f'"q/{i},""x"".png",a,{"ab"[i % 2]},2026-01-31T12:00:0{i}.125Z')
    lines.append("q/bad.png,,unknown,")
    path.write_text("\n".join(lines) + "\n")


def open_corrections(path: Path) -> object:
    found = read_corrections(path)
    assert all(one.path and one.corrected for one in found)
    return len(found)


def make_detections(path: Path) -> None:
    """Write MegaDetector's batch output, one value per line, so that each can be damaged."""
    bbox = [0.1, 0.25, 0.5, 0.3]
    content = {
        "info": {"format_version": "1.5", "detector": "x"},
        "detection_categories": {"1": "animal", "2": "person"},
        "images": [
            {"file": "a/0.jpg", "detections": [{"category": "1", "conf": 0.9, "bbox": bbox}] * 2},
            {"file": "a/1.jpg", "detections": [{"category": "2", "conf": 0.1, "bbox": bbox}]},
            {"file": "b\\2.jpg", "detections": None, "failure": "Failure image open"},
            {"file": "a/3.jpg", "detections": []},
        ],
    }
    path.write_text(json.dumps(content, indent=1))


def make_boxes(path: Path) -> None:
    lines = ["path,x,y,width,height,label,confidence,unit"]
    lines += [f'"a/{i}.jpg",{i},20,30.5,40,{"xy"[i % 2]},0.{i + 2},' for i in range(4)]
    lines += ["b/5.jpg,0.1,0.2,0.3,0.4,,,relative", "b/6.jpg,,,,,,,"]
    path.write_text("\n".join(lines) + "\n")


def open_boxes(path: Path) -> object:
    """Divide the images that the file names, and some that it may name; every item has a name to print."""
    detected = BoxOptions(path).read()
    named = Images([ImageFile(place, ()) for place in detected.places()])
    others = Images([ImageFile(f"{path.parent}/a/{i}.jpg", ("a",)) for i in range(4)])
    for source in (named, others):
        files = detected.divide(source).files
        assert len({file.path for file in files}) == len(files)
        for file in files:
            file.path.encode("utf-8", "surrogateescape")
            region = parse_region(file.path)
            if file.error is None:
                assert region is not None
                assert region.name == file.path
                with contextlib.suppress(SampleError):
                    left, top, right, bottom = region.box.edges(640, 480, 0.1)
                    assert 0 <= left < right <= 640
                    assert 0 <= top < bottom <= 480
    return len(named)


IDENTITY = {"gallery": "x" * 64, "top": None, "inputs": 12, "version": 1.5}
BATCHES = [b"path,label\n", b"a,b\nc,d\n", b"e,f\n" * 40]


def make_journal(path: Path) -> None:
    """Write the journal of a run that was stopped after three batches."""
    output = Path("run.csv")
    with contextlib.suppress(KeyboardInterrupt), resumable(output, IDENTITY, resume=False) as partial:
        for batch in BATCHES:
            partial.write(batch)
            partial.end_batch({"ok": 2}, 0)  # type: ignore[arg-type]
        raise KeyboardInterrupt
    path.write_bytes(Path("run.csv.crnr-journal").read_bytes())


def open_journal(path: Path) -> object:
    """Continue the run; the partial file may be damaged too, in a way that the journal's bytes decide."""
    output, part = Path("run.csv"), Path("run.csv.crnr-part")
    chance = Random(zlib.crc32(path.read_bytes()))
    left = b"".join(BATCHES)
    if chance.random() < 0.3:
        left = damage.bytes_changed(left, chance)
    part.write_bytes(left)
    Path("run.csv.crnr-journal").write_bytes(path.read_bytes())
    try:
        with resumable(output, IDENTITY, resume=True) as partial:
            size = partial.done.size
            assert 0 <= size <= len(left)
            partial.write(b"the rest\n")
            partial.end_batch({"ok": 1}, 0)  # type: ignore[arg-type]
        assert output.read_bytes() == left[:size] + b"the rest\n"
    finally:
        output.unlink(missing_ok=True)
    return size


def open_image(path: Path) -> object:
    pixels = read_pixels(str(path), PixelRequest((8, 6), max_pixels=_MAX_PIXELS))
    assert (pixels.width, pixels.height) == (8, 6)
    assert len(pixels.data) == 8 * 6 * (4 if pixels.is_float else 1)
    return None


def open_image_apart(path: Path) -> object:
    """Open an image in a decoder process, which may crash."""
    (found,) = DecoderPool(1).decode([str(path)], PixelRequest((8, 6), max_pixels=_MAX_PIXELS))
    if isinstance(found, SampleError):
        raise DataError(str(found))
    return None


def make_container(path: Path) -> None:
    """Write a HEIC or AVIF with everything that an image can have in it: alpha, a turn, EXIF."""
    exif = Image.Exif()
    exif[0x0112] = 6
    draw_image(0, 1, (40, 30)).convert("RGBA").save(path, exif=exif.tobytes())


def make_image(path: Path) -> None:
    draw_image(0, 1, (20, 15)).save(path)


def make_deep_png(path: Path) -> None:
    Image.fromarray(np.arange(300, dtype=np.uint16).reshape(15, 20) * 200).save(path)


def make_turned_jpeg(path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    draw_image(0, 1, (20, 15)).convert("RGB").save(path, exif=exif)


def make_model(path: Path) -> None:
    from helpers.onnx_models import flat_model

    flat_model(path, [1, 3, 4, 4])


def open_model(path: Path) -> object:
    from crnr_cli.choices import NetworkOptions
    from crnr_cli.recipe.network_session import make_network

    return make_network(NetworkOptions(path, "raw"), 1).n_outputs


def make_config(path: Path) -> None:
    mean, std = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    processor = {
        **{"image_processor_type": "BitImageProcessor", "do_resize": True, "do_center_crop": True},
        **{"size": {"shortest_edge": 256}, "crop_size": {"height": 224, "width": 224}, "resample": 3},
        **{"do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True},
        **{"image_mean": mean, "image_std": std},
    }
    timm = {
        "input_size": [3, 224, 224],
        "crop_pct": 0.9,
        "mean": mean,
        "std": std,
        "interpolation": "bicubic",
    }
    # A reader looks for its own section, or takes the whole file.
    path.write_text(json.dumps({"image_processor": processor, "pretrained_cfg": timm}, indent=1))


def open_config(path: Path) -> object:
    """By the readers of Hugging Face's file and of timm's."""
    from crnr_cli.models.preprocessing import find_preparation

    content = path.read_bytes()
    found = []
    for name in ("preprocessor_config.json", "config.json"):
        Path(name).write_bytes(content)
        try:
            found.append(find_preparation(Path("model.onnx")))
        finally:
            Path(name).unlink()
    for one in filter(None, found):
        assert not one.settings.keys() & one.faults.keys()
        assert all(
            math.isfinite(value) for value in (*one.settings.get("mean", ()), one.settings.get("crop", 0))
        )
        assert 0 not in one.settings.get("std", (1,))
    return [one and (dict(one.settings), dict(one.faults)) for one in found]


def png(path: Path) -> None:
    buffer = io.BytesIO()
    draw_image(0, 1, (20, 15)).convert("RGBA").save(buffer, "png")
    path.write_bytes(buffer.getvalue())


def make_sidecar_file(path: Path) -> None:
    """With names of another program, comments, attributes and lists, as real ones."""
    content = make_sidecar({SUBJECT: ["holiday", "é & <b>"], HIERARCHY: ["animal|cat"]})
    own = b"<own:x xmlns:own='urn:x' own:y='a > b'><!-- c --><own:z/></own:x>"
    path.write_bytes(content.replace(b"<lr:", own + b"<lr:", 1))


def open_sidecar(path: Path) -> object:
    """By adding keywords: all other bytes are still there, and a second time changes nothing."""
    content = path.read_bytes()
    keywords = {SUBJECT: ["fox"], HIERARCHY: ["animal|fox"]}
    try:
        changed = add_keywords(content, keywords)
    except SidecarError as e:
        raise DataError(str(e)) from e
    assert add_keywords(changed, keywords) is changed
    signs = iter(changed)
    assert all(sign in signs for sign in content.replace(b"/>", b">"))
    return read_keywords(changed, SUBJECT)


def make_boxed_predictions(path: Path) -> None:
    path.write_text(
        "path,truth,label,status,probability,corrected,timestamp\n"
        '"a.png#0.1,0.25,0.5,0.3",,fox,ok,0.9,,2026-01-02T03:04:05\n'
        '"a.png#2,1,4,5",,wolf,ok,0.8,bear,\n'
        "b/c.png,,person,ok,0.7,,2026-01-02T03:04:05+01:00\n"
        "d.png,,unknown,rejected,0.1,,\ne.png,,,truncated,,,\n"
    )


def open_boxed_predictions(path: Path) -> object:
    """In all formats; two of them may write no NaN, and no box that is not finite."""
    deployments = Path("deployments.csv")
    if not deployments.exists():
        draw_image(0, 1, (20, 15)).save("a.png")
        deployments.write_text(
            "deploymentID,latitude,longitude,deploymentStart,deploymentEnd\n"
            "d,0,0,2026-01-01T00:00:00Z,2026-02-01T00:00:00Z\n"
        )
    images = read_images(path).images
    for image in images:
        image.header = ImageHeader(20, 15, "2026:01:02 03:04:05")
    made = []
    for name in EXPORTERS:
        options = ExportOptions(deployments=deployments if name == "camtrap-dp" else None)
        made.append(exporter_of(name).make(images, options))
    return [json.loads(one.files[""]) if "" in one.files else one.files for one in made]


def make_taxa(path: Path) -> None:
    """With several levels, ranks and a name in two Unicode forms."""
    rows = [
        "fox,canid,species",
        "dog,canid,species",
        "canid,mammal,family",
        "cat,mammal,",
        "Ba\u0308r,mammal,",
    ]
    text = "\n".join(["class,parent,rank", *rows, "B\u00e4r,mammal,", "mammal,,class", "hen,bird,"])
    path.write_text(text, encoding="utf-8")


def open_taxa(path: Path) -> object:
    """By its ancestors, and by the answers of a gallery: their probabilities never decrease upwards."""
    taxa = read_taxa(path)
    for name in taxa.parents:
        assert len(set(taxa.list_above(name))) == len(taxa.list_above(name)) < MOST_LEVELS
    broader = BroaderClasses.of(taxa, ["cat", "dog", "fox", "hen"])
    places, sums = broader.choose(np.full((1, 4), 0.25), 0.5)
    assert all(place < 0 or total >= 0.5 for place, total in zip(places, sums, strict=True))
    return broader.names


KINDS: dict[str, Kind] = {
    "taxa": Kind(".csv", make_taxa, open_taxa, damage.csv_changed, 4),
    "sidecar": Kind(".xmp", make_sidecar_file, open_sidecar, damage.xml_changed, 4),
    "predictions with boxes": Kind(
        ".csv", make_boxed_predictions, open_boxed_predictions, damage.csv_changed, 4
    ),
    "gallery": Kind(".h5", make_gallery, open_gallery, damage.gallery_changed, 8),
    "gallery of src": Kind(".h5", lambda p: make_gallery(p, "src"), open_gallery, damage.gallery_changed, 2),
    "gallery of nsc": Kind(".h5", lambda p: make_gallery(p, "nsc"), open_gallery, damage.gallery_changed, 2),
    "hdf5": Kind(".h5", make_hdf5, open_features, damage.hdf5_changed, 6),
    "packed hdf5": Kind(
        ".h5",
        lambda path: make_hdf5(path, compression="gzip", shuffle=True, fletcher32=True, chunks=(4, 5)),
        open_features,
        damage.hdf5_changed,
        4,
    ),
    "hdf5 with text": Kind(".h5", lambda p: make_hdf5(p, text=True), open_features, damage.hdf5_changed, 0.1),
    "extracted": Kind(".h5", make_extracted, open_extracted, damage.hdf5_changed, 4),
    "npz": Kind(".npz", make_npz, open_features, damage.zip_changed, 18),
    "npy": Kind(".npy", make_npy, open_features, damage.npy_changed, 4),
    "npy of labels": Kind(".npy", make_npy_labels, open_npy_labels, damage.npy_changed, 4),
    "csv of numbers": Kind(".csv", make_numbers, open_features, damage.csv_changed, 8),
    "parquet": Kind(".parquet", lambda path: make_parquet(path, lists=False), open_features, None, 4),
    "parquet of lists": Kind(
        ".parquet",
        lambda path: make_parquet(path, lists=True, compression="gzip", use_dictionary=False),
        open_features,
        None,
        4,
    ),
    "parquet of predictions": Kind(".parquet", make_predictions, open_table, None, 4),
    "json lines": Kind(".jsonl", make_json_lines, open_table, damage.journal_changed, 4),
    "mat": Kind(".mat", make_mat, open_mat_here, damage.mat_changed, 8, whole_way=open_features),
    "mat, all the way": Kind(".mat", make_mat, open_features, damage.mat_changed, 0.1),
    "mat 7.3": Kind(".mat", make_mat73, open_features, damage.hdf5_changed, 2),
    "table": Kind(".csv", make_table, open_table, damage.csv_changed, 12),
    "corrections": Kind(".csv", make_corrections, open_corrections, damage.csv_changed, 4),
    "detections": Kind(".json", make_detections, open_boxes, damage.journal_changed, 4),
    "boxes": Kind(".csv", make_boxes, open_boxes, damage.csv_changed, 4),
    "journal": Kind(".journal", make_journal, open_journal, damage.journal_changed, 6),
    "png": Kind(".png", png, open_image, damage.png_changed, 8),
    "png of 16 bits": Kind(".png", make_deep_png, open_image, damage.png_changed, 3),
    "jpg": Kind(".jpg", make_turned_jpeg, open_image, None, 5),
    "tif": Kind(".tif", make_image, open_image, damage.tiff_changed, 5),
    "gif": Kind(".gif", make_image, open_image, None, 2),
    "bmp": Kind(".bmp", make_image, open_image, None, 2),
    "webp": Kind(".webp", make_image, open_image, None, 2),
    "pgm": Kind(".pgm", make_image, open_image, None, 2),
    "heic": Kind(".heic", make_container, open_image, damage.boxes_changed, 5, whole_way=open_image_apart),
    "avif": Kind(".avif", make_container, open_image, damage.boxes_changed, 3, whole_way=open_image_apart),
    "file beside a model": Kind(".json", make_config, open_config, damage.journal_changed, 2),
    "model": Kind(".onnx", make_model, open_model, damage.protobuf_changed, 1),
}
