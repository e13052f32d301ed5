"""The outputs of a command: checked before any work, and never one of its inputs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from crnr_cli.errors import OutputError, UsageError
from crnr_cli.system.files import check_output, replacing
from crnr_cli.system.outputs import (
    DeclaredOutput,
    planned,
    refuse_inputs,
    refuse_inside,
    refuse_listed,
    refuse_mentioned,
)

IS_INPUT = "is an input of this run; write to another file"


def test_a_device_needs_no_permission_for_its_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    access = os.access

    def closed_dev(path: Path, how: int, **options: bool) -> bool:
        return str(path) != "/dev" and access(path, how, **options)

    monkeypatch.setattr(os, "access", closed_dev)
    check_output(Path("/dev/null"))
    with pytest.raises(OutputError, match="no permission"):
        check_output(Path("/dev/new"))


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file data with a second name, a link to it, and a folder with another spelling of it."""
    monkeypatch.chdir(tmp_path)
    Path("data").write_text("data")
    os.link("data", "second")
    Path("link").symlink_to("data")
    Path("folder").mkdir()
    return tmp_path / "data"


@pytest.mark.parametrize("output", ["data", "second", "link", "folder/../data", "./data"])
@pytest.mark.parametrize("given", ["data", "second", "link", "folder/../data", "./data"])
@pytest.mark.usefixtures("data")
def test_an_input_is_known_by_the_file_and_not_by_its_name(output: str, given: str) -> None:
    with planned([DeclaredOutput(Path(output))]), pytest.raises(OutputError) as refused:
        refuse_inputs(["elsewhere", given])
    assert str(refused.value) == f"{Path(output)}: {IS_INPUT}"
    with pytest.raises(OutputError, match=IS_INPUT), planned([DeclaredOutput(Path(output))], [Path(given)]):
        pass
    found = Path("data").stat()
    with planned([DeclaredOutput(Path(output))]), pytest.raises(OutputError, match=IS_INPUT):
        refuse_listed([(given, found.st_size, found.st_mtime_ns)], are_images=True)


@pytest.mark.usefixtures("data")
def test_other_files_are_no_obstacle() -> None:
    with planned([DeclaredOutput(Path("new"))], [Path("data"), Path("missing")]):
        refuse_inputs(["data", "missing", "nul\0"])
        refuse_mentioned(["data", "folder/new", "new"])
        refuse_listed([("data", 4, 0)], are_images=True)
        refuse_inside("folder")
    with planned([DeclaredOutput(Path("second"))]):
        refuse_mentioned(["data"])  # only names are compared, as there may be very many
        with pytest.raises(OutputError, match=IS_INPUT):
            refuse_mentioned(["data", "folder/../second"])
    refuse_inputs(["data"])  # not in a command


@pytest.mark.parametrize("ending", [".crnr-part", ".crnr-journal"])
def test_an_input_with_the_name_of_a_partial_file(data: Path, ending: str) -> None:
    data.with_name(f"photo{ending}").write_text("data")
    with planned([DeclaredOutput(Path("photo"))]), pytest.raises(OutputError) as refused:
        refuse_inputs([f"photo{ending}"])
    assert str(refused.value) == (
        f"photo: while it is written, crnr uses the name photo{ending}, but photo{ending} is an input of "
        "this run; write to another file"
    )


@pytest.mark.usefixtures("data")
def test_a_gallery_may_be_among_the_images_that_it_is_made_of() -> None:
    Path("gallery.h5").write_bytes(b"\x89HDF\r\n\x1a\n...")
    with planned([DeclaredOutput(Path("gallery.h5"), is_gallery=True)]):
        refuse_inputs(["gallery.h5"], are_images=True)
        refuse_inside(".")
        with pytest.raises(OutputError, match=IS_INPUT):
            refuse_inputs(["gallery.h5"])
    with planned([DeclaredOutput(Path("data"), is_gallery=True)]), pytest.raises(OutputError, match=IS_INPUT):
        refuse_inputs(["data"], are_images=True)


@pytest.mark.usefixtures("data")
def test_nothing_else_may_be_in_a_folder_of_inputs() -> None:
    for folder in (".", "folder", "folder/../folder"):
        with planned([DeclaredOutput(Path("folder/new"))]), pytest.raises(OutputError) as refused:
            refuse_inside(folder)
        assert str(refused.value) == f"folder/new: is inside {folder}, which is an input; write it elsewhere"
    with planned([DeclaredOutput(Path("new"))]):
        refuse_inside("folder")


SAME = "two outputs cannot be the same file; give them different names"


@pytest.mark.parametrize(
    "names",
    [("z", "z"), ("z", "./z"), ("z", "folder/../z"), ("data", "link"), ("a", "b", "a"), ("z", "z.crnr-part")],
)
@pytest.mark.usefixtures("data")
def test_two_outputs_of_one_name(names: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match=SAME), planned([DeclaredOutput(Path(name)) for name in names]):
        pass


@pytest.mark.usefixtures("data")
def test_two_outputs_may_go_to_one_device() -> None:
    with planned([DeclaredOutput(Path("/dev/null")), DeclaredOutput(Path("/dev/null"))]):
        pass


@pytest.mark.usefixtures("data")
def test_an_output_that_is_not_declared_is_a_bug() -> None:
    with (
        planned([DeclaredOutput(Path("new"))]),
        pytest.raises(AssertionError, match="other is not declared"),
        replacing(Path("other")),
    ):
        pass
    assert not Path("other").exists()


@pytest.mark.usefixtures("data")
def test_a_gallery_is_a_regular_file() -> None:
    with (
        pytest.raises(OutputError, match="not a regular file"),
        planned([DeclaredOutput(Path("/dev/null"), True)]),
    ):
        pass


@pytest.mark.usefixtures("data")
def test_a_link_to_nowhere() -> None:
    Path("lost").symlink_to("missing/file")
    with pytest.raises(OutputError, match=r"lost: is a link to .*/missing/file, whose folder does not exist"):
        check_output(Path("lost"))
    Path("loop").symlink_to("loop")
    with pytest.raises(OutputError, match=r"loop: cannot write .Too many levels of symbolic links"):
        check_output(Path("loop"))


@pytest.mark.parametrize("name", ["x" * 256, "x" * 256 + "/x", "\0", "a\0/b"], ids=ascii)
@pytest.mark.usefixtures("data")
def test_a_name_that_no_file_can_have(name: str) -> None:
    with pytest.raises(OutputError, match="cannot write"):
        check_output(Path(name))
