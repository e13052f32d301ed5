"""Options that were renamed still have their old names, which no help shows."""

from __future__ import annotations

import pytest

from crnr_cli.cli.parsing import OLD_SPELLINGS
from helpers.runner import Runner
from helpers.samples import draw_image, make_images

COMMANDS = {"images-from": ("evaluate", "review", "explain", "audit"), "image": ("model check",)}


def test_every_old_spelling_has_its_commands() -> None:
    assert COMMANDS.keys() == OLD_SPELLINGS.keys()


@pytest.mark.parametrize(
    ("new", "command"), [(new, one) for new, all_of in COMMANDS.items() for one in all_of]
)
def test_help_shows_the_new_spelling_alone(crnr: Runner, new: str, command: str) -> None:
    shown = crnr(*command.split(), "--help", columns=100).out
    assert f"--{new} " in shown
    assert f"--{OLD_SPELLINGS[new]} " not in shown


@pytest.mark.parametrize("option", ["--images-from", "--pictures-from"])
def test_explain_takes_both_spellings(crnr: Runner, option: str) -> None:
    make_images(crnr.here / "gallery")
    draw_image(0, 9).save(crnr.here / "query.png")
    assert crnr("build", "gallery", "-q").exit == 0
    (crnr.here / "gallery").rename(crnr.here / "moved")
    outcome = crnr("explain", "query.png", "-o", "w.html", option, "moved")
    assert (outcome.exit, outcome.err) == (0, "wrote w.html\n")
