"""Make the images of README and tutorial from the sample data: docs/report.png, review.png and explain.png.

    python docs/make_pictures.py

Needs the extra `report`, and Chromium for the picture of a page. Run it again when the pages change.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image, ImageDraw

HERE = Path(__file__).parent
WIDTH, HEIGHT = 1180, 1490
HEIGHT_OF_REVIEW = 860
QUERY = "sample_data/queries/5/2556.png"  # a 5 that is almost taken for a 2
COVERED_QUERY = "sample_data/queries/0/0050.png"


def crnr(*arguments: str, here: Path = HERE.parent) -> None:
    subprocess.run([sys.executable, "-m", "crnr_cli", *arguments], check=True, cwd=here)


def photograph(page: Path, picture: Path, profile: Path, height: int = HEIGHT) -> None:
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        raise SystemExit("needs Chromium (Debian: apt-get install chromium)")
    flags = ["--headless", "--disable-gpu", "--no-first-run", "--disable-sync", "--hide-scrollbars"]
    flags += ["--disable-background-networking", "--disable-component-update", "--disable-quic"]
    if os.geteuid() == 0:
        flags.append("--no-sandbox")  # Chromium refuses to start as root with it
    size = [f"--user-data-dir={profile}", f"--window-size={WIDTH},{height}", f"--screenshot={picture}"]
    subprocess.run([browser, *flags, *size, page.as_uri()], check=True, stderr=subprocess.DEVNULL)


def shrink(picture: Path) -> None:
    """Flat colours: 256 of them look the same, in a third of the bytes."""
    with Image.open(picture) as image:
        small = image.convert("RGB").quantize(256, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    small.save(picture, optimize=True)


def draw_tiles(folder: Path) -> None:
    """Explain a digit whose lower right quarter is covered: docs/tiles.png."""
    with Image.open(HERE.parent / COVERED_QUERY) as digit:
        covered = digit.convert("L")
    ImageDraw.Draw(covered).rectangle((14, 14, 27, 27), fill=128)
    covered.save(folder / "covered.png")
    gallery = str(folder / "tiles.h5")
    crnr("build", "sample_data/gallery", "--cell", "3", "--parts", "4x4", "-o", gallery, "--quiet")
    found = ("--images-from", str(HERE.parent))
    # In its folder, because the drawing shows the path of the query.
    crnr("explain", "covered.png", "-g", gallery, *found, "-o", str(HERE / "tiles.png"), here=folder)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        gallery, page = folder / "gallery.h5", folder / "report.html"
        crnr("build", "sample_data/gallery", "-o", str(gallery), "--quiet")
        crnr("evaluate", "sample_data/queries", "-g", str(gallery), "--html", str(page), "--quiet", "--json")
        photograph(page, HERE / "report.png", folder / "profile")
        crnr("explain", QUERY, "-g", str(gallery), "-o", str(HERE / "explain.png"))
        draw_tiles(folder)
        for part in ("gallery", "queries"):
            shutil.copytree(HERE.parent / "sample_data" / part, folder / part)
        crnr("build", "gallery", "--calibrate", "--quiet", here=folder)
        crnr("classify", "queries", "-o", "out.csv", "--quiet", here=folder)
        crnr("review", "out.csv", "--quiet", here=folder)
        photograph(folder / "review.html", HERE / "review.png", folder / "profile", HEIGHT_OF_REVIEW)
    for picture in ("report.png", "review.png", "explain.png", "tiles.png"):
        shrink(HERE / picture)


if __name__ == "__main__":
    main()
