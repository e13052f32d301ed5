"""Networks from the Hugging Face hub: an imitation of it, its faults, and that nothing is left behind."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import socket
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import constants, file_download

from crnr_cli.errors import CrnrError, DataError, OutputError, UsageError
from crnr_cli.jobs import model as job
from crnr_cli.jobs.model import GotModel, HubOptions, get_model
from crnr_cli.models.catalog import MODELS, find_model
from crnr_cli.system.extras import describe_missing
from helpers.hub import CONFIGS, OUTPUTS, Hub, imitated_hub, make_export, repository_files
from helpers.onnx_models import whole_clip_export
from helpers.patches import remove_extras
from helpers.runner import Runner, ended
from helpers.samples import make_images

NAME, REPOSITORY, FILE = "dinov2-small", "Xenova/dinov2-small", "onnx/model.onnx"
CHUNK = 64  # bytes that huggingface_hub writes at once
FETCHED = {"LICENSE", "README.md", FILE, "origin.json", "preprocessor_config.json"}
ON_HUB = [name for name, model in MODELS.items() if model.repository]


@pytest.fixture
def crnr(crnr: Runner, monkeypatch: pytest.MonkeyPatch) -> Runner:
    monkeypatch.setenv("CRNR_MODELS", str(crnr.here / "models"))
    monkeypatch.setattr(job, "_SECONDS", 0)
    return crnr


@pytest.fixture
def hub(crnr: Runner, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """The hub with one network, and huggingface_hub with a cache of its own, as its variables set it."""
    with imitated_hub() as hub:
        hub.add(REPOSITORY, repository_files(NAME, crnr.here))
        (crnr.here / "export.onnx").unlink()
        for name in ("http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.delenv(name, raising=False)
            monkeypatch.delenv(name.upper(), raising=False)
        for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "CRNR_OFFLINE"):
            monkeypatch.delenv(name, raising=False)
        template = hub.address + "/{repo_id}/resolve/{revision}/{filename}"
        for constant, value in {
            "ENDPOINT": hub.address,
            "HUGGINGFACE_CO_URL_TEMPLATE": template,
            "HF_HUB_CACHE": str(crnr.here / "cache"),
            "HF_HUB_OFFLINE": False,
            "HF_TOKEN_PATH": str(crnr.here / "none"),
            "HF_HUB_DISABLE_TELEMETRY": False,
            "DOWNLOAD_CHUNK_SIZE": CHUNK,
        }.items():
            monkeypatch.setattr(constants, constant, value)
        pauses = SimpleNamespace(sleep=lambda seconds: None, time=file_download.time.time)
        monkeypatch.setattr(file_download, "time", pauses)
        huggingface_hub.close_session()
        yield hub
        huggingface_hub.close_session()


def installed(folder: Path) -> set[str]:
    """Return the files of the network, after a look at its neighbours."""
    assert {path.name for path in folder.iterdir()} == {NAME}
    return {path.relative_to(folder / NAME).as_posix() for path in folder.rglob("*") if path.is_file()}


def refused(error: type[CrnrError] = CrnrError, options: HubOptions | None = None) -> str:
    """Return the message; no folder of models is there afterwards."""
    with pytest.raises(error) as caught:
        get_model(NAME, hub=options)
    assert not Path("models").exists()
    return str(caught.value)


def test_model_get_downloads_all_files_of_a_network(crnr: Runner, hub: Hub) -> None:
    commit, place = hub.commits[REPOSITORY], crnr.here / "models" / NAME / FILE
    outcome = crnr("model", "get", NAME)
    host = hub.address.removeprefix("http://")
    size = sum(len(hub.repositories[REPOSITORY][name]) for name in FETCHED - {"origin.json"}) / 1e6
    assert (outcome.exit, outcome.out) == (0, f"{place}\n")
    assert outcome.err.splitlines() == [
        f"{NAME}: about 89 MB from {host}, repository {REPOSITORY}; licence of the network: Apache-2.0",
        f"{NAME}: commit {commit}, 4 files, {size:.1f} MB to download",
        f"{NAME}: 384 features per image; use it with --extractor {NAME}",
    ]
    assert installed(crnr.here / "models") == FETCHED
    for name in FETCHED - {"origin.json"}:
        assert (crnr.here / "models" / NAME / name).read_bytes() == hub.repositories[REPOSITORY][name]
    assert find_model(Path(NAME)) == place
    origin = json.loads((crnr.here / "models" / NAME / "origin.json").read_text())
    sums = {name: hashlib.sha256(hub.repositories[REPOSITORY][name]).hexdigest() for name in origin["sha256"]}
    assert origin == {"repository": REPOSITORY, "host": host, "commit": commit, "sha256": sums}
    assert set(sums) == FETCHED - {"origin.json"}


def test_announcement_comes_before_the_first_request(crnr: Runner, hub: Hub) -> None:
    seen: list[tuple[str, int]] = []

    def announce(text: str) -> None:
        seen.append((text.split(",")[0], len(hub.requests)))

    get_model(NAME, hub=HubOptions(announce=announce))
    host = hub.address.removeprefix("http://")
    assert seen == [
        (f"{NAME}: about 89 MB from {host}", 0),
        (f"{NAME}: commit {hub.commits[REPOSITORY]}", 1),  # the list of files
    ]


def test_an_installed_network_needs_no_connection(
    crnr: Runner, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = get_model(NAME)
    count = len(hub.requests)
    remove_extras(monkeypatch.setattr)
    assert get_model(NAME) == GotModel(MODELS[NAME], first.path, was_here=True, commit=first.commit)
    assert len(hub.requests) == count
    outcome = crnr("model", "get", NAME)
    assert outcome.err == (
        f"{NAME}: already installed, commit {first.commit}; use it with --extractor {NAME}\n"
    )
    listed = json.loads(crnr("model", "list", "--json").out)["models"]
    assert {one["name"]: one["commit"] for one in listed if one["commit"]} == {NAME: first.commit}
    found = json.loads(crnr("model", "get", NAME, "-q", "--json").out)
    assert found == {"name": NAME, "path": str(first.path), "was_here": True, "commit": first.commit}


@pytest.mark.parametrize("name", ON_HUB)
def test_every_network_of_the_catalogue_can_be_downloaded(crnr: Runner, hub: Hub, name: str) -> None:
    """The right output is used, and images are prepared as the repository's file describes."""
    model = MODELS[name]
    assert model.repository is not None
    hub.add(model.repository.name, repository_files(name, crnr.here))
    assert crnr("model", "get", name, "-q") == (crnr("model", "get", name, "-q"))
    found = json.loads(crnr("model", "check", name, "--json").out)
    assert (found["is_usable"], found["features"]) == (True, model.n_features)
    outputs = {"dinov2": "last_hidden_state", "siglip": "pooler_output"}
    settings = {key: one["value"] for key, one in found["settings"].items()}
    assert settings["output"] == outputs.get(model.preset, "image_embeds")
    assert settings["pool"] == ("cls" if model.preset == "dinov2" else "none")
    assert settings["size"] == [model.size, model.size]
    assert settings["preparation"].endswith(f"{name}/preprocessor_config.json")
    assert OUTPUTS[name][settings["output"]] == model.n_features
    assert settings["filter"] == ("bilinear" if CONFIGS[model.preset]["resample"] == 2 else "bicubic")


def test_all_networks_of_hugging_face_are_imitated() -> None:
    assert list(OUTPUTS) == ON_HUB


def test_a_pinned_commit_is_taken(crnr: Runner, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = hub.commits[REPOSITORY]
    pinned = replace(MODELS[NAME].repository, revision=commit)  # type: ignore[type-var]
    monkeypatch.setitem(MODELS, NAME, replace(MODELS[NAME], repository=pinned))
    assert get_model(NAME).commit == commit
    assert hub.requests[0] == f"GET /api/models/{REPOSITORY}/revision/{commit}"


def test_another_revision_replaces_the_installed_one(crnr: Runner, hub: Hub) -> None:
    old = get_model(NAME).commit
    files = hub.repositories[REPOSITORY]
    new = hub.add(REPOSITORY, {**files, "LICENSE": b"another one"})
    assert get_model(NAME) == GotModel(MODELS[NAME], crnr.here / "models" / NAME / FILE, True, old)
    assert get_model(NAME, hub=HubOptions(revision=new)).commit == new
    assert (crnr.here / "models" / NAME / "LICENSE").read_bytes() == b"another one"
    assert installed(crnr.here / "models") == FETCHED
    with pytest.raises(CrnrError, match=f"has no revision {old}; nothing was installed"):
        get_model(NAME, hub=HubOptions(revision=old))
    assert get_model(NAME).commit == new
    without = {name: files[name] for name in files if name != "preprocessor_config.json"}
    assert not get_model(NAME, hub=HubOptions(revision=hub.add(REPOSITORY, without))).was_here
    assert installed(crnr.here / "models") == FETCHED - {"preprocessor_config.json"}


def test_a_damaged_network_is_downloaded_again(crnr: Runner, hub: Hub) -> None:
    """Its other name in the cache is damaged too: that is noticed there."""
    place = get_model(NAME).path
    with place.open("r+b") as file:
        file.write(b"damage")
    assert not get_model(NAME).was_here
    assert place.read_bytes() == hub.repositories[REPOSITORY][FILE]
    assert [request for request in hub.requests if request.startswith("GET /large/")] == [
        f"GET /large/{REPOSITORY}/{FILE}"
    ] * 2


def test_a_network_in_the_cache_is_not_downloaded_again(crnr: Runner, hub: Hub) -> None:
    get_model(NAME)
    shutil.rmtree("models")
    hub.requests.clear()
    texts: list[str] = []
    get_model(NAME, hub=HubOptions(announce=texts.append))
    assert texts[1].endswith(", 4 files, 0.0 MB to download")
    assert hub.requests == [f"GET /api/models/{REPOSITORY}", f"HEAD /{REPOSITORY}/resolve/main/{FILE}"]
    assert Path("models", NAME, FILE).stat().st_nlink == 2  # no space is taken twice


def test_a_cache_on_another_disk_is_copied(crnr: Runner, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    def other_disk(path: Path, source: Path) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    monkeypatch.setattr(Path, "hardlink_to", other_disk)
    assert get_model(NAME).path.stat().st_nlink == 1
    assert installed(crnr.here / "models") == FETCHED


@pytest.mark.parametrize("ignores_ranges", [False, True])
def test_a_broken_transfer_resumes(crnr: Runner, hub: Hub, ignores_ranges: bool) -> None:
    hub.cuts, hub.ignores_ranges = [10 * CHUNK, 20 * CHUNK], ignores_ranges
    place = get_model(NAME).path
    assert place.read_bytes() == hub.repositories[REPOSITORY][FILE]
    large = f"GET /large/{REPOSITORY}/{FILE}"
    transfers = [request for request in hub.requests if request.startswith(large)]
    assert transfers == [large, f"{large} from {10 * CHUNK}", f"{large} from {20 * CHUNK}"]


def test_a_transfer_that_always_breaks(crnr: Runner, hub: Hub) -> None:
    hub.cuts = [100] * 99
    message = refused()
    assert message.startswith(f"{REPOSITORY}: cannot be downloaded from 127.0.0.1:")
    assert message.endswith("; check the connection and HF_ENDPOINT; nothing was installed")
    hub.cuts.clear()
    assert not get_model(NAME).was_here


@pytest.mark.parametrize("file", [FILE, "preprocessor_config.json"])
def test_a_wrong_checksum_is_refused(crnr: Runner, hub: Hub, file: str) -> None:
    """The same number of bytes, so huggingface_hub notices nothing; no file of it remains in its cache."""
    promised = hub.repositories[REPOSITORY][file]
    hub.sent[file] = promised[:-1] + bytes([promised[-1] ^ 1])
    message = refused(DataError)
    assert message.startswith(f"{REPOSITORY}: {file} from 127.0.0.1:")
    assert " has the wrong checksum, so it is damaged or was replaced; crnr did not use it;" in message
    cached = [path for path in Path("cache").rglob("*") if path.is_file() and path.name != "CACHEDIR.TAG"]
    assert hub.sent[file] not in [path.read_bytes() for path in cached]
    hub.sent.clear()
    assert not get_model(NAME).was_here


def test_a_repository_without_the_network(crnr: Runner, hub: Hub) -> None:
    files = hub.repositories[REPOSITORY]
    commit = hub.add(REPOSITORY, {name: files[name] for name in files if name != FILE})
    assert refused(DataError) == f"{REPOSITORY}: has no file {FILE} in commit {commit}"


def test_a_listed_file_that_is_missing(crnr: Runner, hub: Hub) -> None:
    hub.missing.add(FILE)
    assert "refused the request (HTTP 404); check HF_ENDPOINT; the repository may have been" in refused()


def test_a_repository_without_config_and_licence(crnr: Runner, hub: Hub) -> None:
    """The preset of the catalogue describes how images are prepared."""
    hub.add(REPOSITORY, {FILE: hub.repositories[REPOSITORY][FILE]})
    get_model(NAME)
    assert installed(crnr.here / "models") == {FILE, "origin.json"}
    settings = json.loads(crnr("model", "check", NAME, "--json").out)["settings"]
    assert (settings["preparation"]["value"], settings["pool"]["value"]) == ("dinov2", "cls")


def test_only_harmless_files_are_fetched(crnr: Runner, hub: Hub) -> None:
    files = hub.repositories[REPOSITORY]
    others = {"../LICENSE": b"x", "a/LICENSE": b"x", "LICENSE.exe/x": b"x", "LICENSE\n": b"x"}
    large = {"NOTICE": bytes(2**20 + 1), "licence-weights.txt": b"weights"}
    hub.add(REPOSITORY, {**files, **others, **large})
    get_model(NAME)
    assert installed(crnr.here / "models") == {*FETCHED, "licence-weights.txt"}


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (401, "", "refused the request (HTTP 401); check HF_TOKEN, or log in with: hf auth login"),
        (401, "RepoNotFound", "refused the request (HTTP 401); check HF_TOKEN"),
        (403, "GatedRepo", "gives it only to users who accepted its conditions; accept them on its page"),
        (403, "", "refused the request (HTTP 403); check HF_TOKEN"),
        (404, "RepoNotFound", "refused the request (HTTP 404); check HF_ENDPOINT; the repository may"),
        (404, "RevisionNotFound", "has no revision main; nothing was installed"),
        (500, "", "refused the request (HTTP 500); try again later"),
    ],
)
def test_refusals_of_the_hub(crnr: Runner, hub: Hub, status: int, code: str, message: str) -> None:
    hub.status = status, code
    found = refused()
    assert found.startswith(f"{REPOSITORY}: 127.0.0.1:")
    assert message in found
    outcome = crnr("model", "get", NAME, "-q")
    assert (outcome.exit, outcome.out, outcome.err.count("\n")) == (1, "", 1)


def test_no_connection(crnr: Runner, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]  # nothing listens there afterwards
    monkeypatch.setattr(constants, "ENDPOINT", f"http://name:secret@127.0.0.1:{port}")
    texts: list[str] = []
    message = refused(options=HubOptions(announce=texts.append))
    assert message.startswith(f"{REPOSITORY}: cannot be downloaded from 127.0.0.1:{port} (")
    assert "secret" not in message + "".join(texts)
    assert hub.requests == []


def test_a_full_disk_leaves_nothing(crnr: Runner, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object, **options: object) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patches:
        patches.setattr(file_download, "http_get", full)
        assert refused(OutputError) == (
            f"{crnr.here}/cache: cannot write (No space left on device); nothing was installed"
        )
    with monkeypatch.context() as patches:
        patches.setattr(Path, "hardlink_to", full)
        patches.setattr(shutil, "copyfile", full)
        assert "cannot write (No space left on device); nothing was installed" in refused(OutputError)
    assert not get_model(NAME).was_here


def test_a_folder_that_cannot_be_written(crnr: Runner, hub: Hub) -> None:
    Path("models").write_bytes(b"a file")
    with pytest.raises(OutputError, match="models: cannot create this folder"):
        get_model(NAME)


def test_a_file_left_by_a_killed_run_is_removed(crnr: Runner, hub: Hub) -> None:
    left = crnr.here / "models" / f"{NAME}.crnr-part" / NAME / FILE
    left.parent.mkdir(parents=True)
    left.write_bytes(b"half")
    get_model(NAME)
    assert installed(crnr.here / "models") == FETCHED


def hostile_exports(folder: Path) -> dict[str, tuple[bytes, str]]:
    """Return files that are not the network, each with the reason of the refusal."""
    whole_clip_export(folder / "clip.onnx")
    wide = make_export(folder / "wide.onnx", {"last_hidden_state": 385})
    return {
        "other features": (wide, f"{FILE}: returns 385 features instead of 384"),
        "text": (b"This is no network.\n", f"{FILE}: not an ONNX model"),
        "empty": (b"", f"{FILE}: "),
        "truncated": (wide[: len(wide) // 2], f"{FILE}: not an ONNX model"),
        "with text": ((folder / "clip.onnx").read_bytes(), f"{FILE}: "),
    }


@pytest.mark.parametrize("kind", ["other features", "text", "empty", "truncated", "with text"])
def test_a_file_that_is_not_the_network_is_not_installed(crnr: Runner, hub: Hub, kind: str) -> None:
    content, reason = hostile_exports(crnr.here)[kind]
    hub.add(REPOSITORY, {**hub.repositories[REPOSITORY], FILE: content})
    message = refused(DataError)
    assert message.startswith(f"{REPOSITORY}: not the network {NAME}, so crnr did not install it: {reason}")
    assert "crnr-part" not in message


def test_a_config_that_crnr_cannot_follow(crnr: Runner, hub: Hub) -> None:
    config = json.dumps(CONFIGS["dinov2"] | {"do_pad": True}).encode()
    hub.add(REPOSITORY, {**hub.repositories[REPOSITORY], "preprocessor_config.json": config})
    assert "crnr did not install it: preprocessor_config.json: " in refused(DataError)


def test_offline_takes_files_from_the_cache_only(
    crnr: Runner, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    offline = HubOptions(offline=True)
    message = refused(DataError, offline)
    assert message == (
        f"{REPOSITORY}: not in the cache {crnr.here}/cache, and crnr is offline; run the command again "
        "without --offline, CRNR_OFFLINE and HF_HUB_OFFLINE"
    )
    assert hub.requests == []
    assert crnr("model", "get", NAME, "--offline").exit == 1
    monkeypatch.setenv("CRNR_OFFLINE", "1")
    outcome = crnr("model", "get", NAME)
    assert (outcome.exit, outcome.out, hub.requests) == (1, "", [])
    assert outcome.err.splitlines()[-1] == f"error: {message}"
    for value in ("0", "false", "No", ""):
        monkeypatch.setenv("CRNR_OFFLINE", value)
        assert crnr("model", "get", NAME, "-q").exit == 0
    hub.requests.clear()
    shutil.rmtree("models")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert get_model(NAME).commit == hub.commits[REPOSITORY]
    assert installed(crnr.here / "models") == FETCHED
    assert hub.requests == []


def test_offline_refuses_a_damaged_cache(crnr: Runner, hub: Hub) -> None:
    get_model(NAME)
    shutil.rmtree("models")
    (path,) = Path("cache").glob(f"models--*/snapshots/*/{FILE}")
    path.resolve().write_bytes(b"damage")
    message = refused(DataError, HubOptions(offline=True))
    assert message.startswith(f"{REPOSITORY}: {FILE} from {crnr.here}/cache has the wrong checksum")


def test_without_the_extra_the_message_names_it(
    crnr: Runner, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove_extras(monkeypatch.setattr)
    missing = describe_missing("hub", f"crnr model get {NAME}", "huggingface_hub", "onnxruntime")
    assert refused() == missing
    assert "[hub]" in missing
    assert hub.requests == []


def test_options_that_do_not_fit_a_network_are_refused(crnr: Runner, hub: Hub) -> None:
    with pytest.raises(UsageError, match="leave out --weights"):
        get_model(NAME, Path("x.pth"))
    for name in ("efficientnet-lite0", "resnet50"):
        with pytest.raises(UsageError, match="leave out --revision"):
            get_model(name, hub=HubOptions(revision="main"))
    assert hub.requests == []


def test_nothing_is_sent_about_this_machine(crnr: Runner, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AI_AGENT", "AGENT"):
        monkeypatch.setenv(name, "something")
    get_model(NAME)
    commit = hub.commits[REPOSITORY]
    files = {f"/{REPOSITORY}/resolve/{of}/{name}" for of in ("main", commit) for name in FETCHED}
    paths = {request.split()[1] for request in hub.requests}
    assert paths <= {f"/api/models/{REPOSITORY}", f"/large/{REPOSITORY}/{FILE}", *files}


def test_other_commands_open_no_connection(crnr: Runner, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even if the network is not there, or its files are only in the cache."""
    make_images(crnr.here / "photos", per_class=2, size=(40, 36))
    get_model(NAME)
    connections: list[object] = []
    monkeypatch.setattr(socket.socket, "connect", lambda self, address: connections.append(address))
    monkeypatch.setattr(socket.socket, "connect_ex", lambda self, address: connections.append(address))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *address, **options: connections.append(address))
    count = len(hub.requests)
    for command in (
        "model list",
        f"model check {NAME}",
        f"build photos --extractor {NAME}",
        "classify photos -o out.csv",
        f"model get {NAME}",
        f"model get {NAME} --offline",
    ):
        outcome = crnr(*command.split())
        assert outcome.exit == 0, outcome.err
    shutil.rmtree("models")
    for command in (f"build photos --extractor {NAME}", "classify photos -o out.csv"):
        outcome = crnr(*command.split())
        assert outcome.exit == 1
        assert f"crnr model get {NAME}" in outcome.err
    assert (connections, len(hub.requests)) == ([], count)
    huggingface_hub.close_session()
    with pytest.raises(CrnrError):  # the watch works
        get_model(NAME)
    assert connections


def environment(hub: Hub, crnr: Runner, **more: str) -> dict[str, str]:
    """Return the environment of a process of its own, whose huggingface_hub reads its variables."""
    dropped = ("COV", "HF_", "http", "HTTP", "all_proxy", "ALL_PROXY")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    return {**kept, "HF_ENDPOINT": hub.address, "HF_HOME": str(crnr.here / "home"), **more}


@pytest.mark.slow
def test_variables_of_huggingface_hub_are_obeyed(crnr: Runner, hub: Hub) -> None:
    online = environment(hub, crnr)
    outcome = crnr.process("model", "get", NAME, "-q", env=environment(hub, crnr, HF_HUB_OFFLINE="1"))
    assert outcome.exit == 1
    assert f"not in the cache {crnr.here}/home/hub, and crnr is offline" in outcome.err
    assert hub.requests == []
    outcome = crnr.process("model", "get", NAME, "-q", env=online)
    assert (outcome.exit, outcome.out, outcome.err) == (0, f"{crnr.here}/models/{NAME}/{FILE}\n", "")
    assert (crnr.here / "home" / "hub").is_dir()
    shutil.rmtree(crnr.here / "models")
    count = len(hub.requests)
    outcome = crnr.process("model", "get", NAME, "-q", env=environment(hub, crnr, HF_HUB_OFFLINE="1"))
    assert (outcome.exit, len(hub.requests)) == (0, count)
    assert installed(crnr.here / "models") == FETCHED


@pytest.mark.slow
def test_two_downloads_at_once_leave_a_complete_network(crnr: Runner, hub: Hub) -> None:
    """Both succeed, or one of them has to wait."""
    processes = [crnr.start("model", "get", NAME, env=environment(hub, crnr)) for _ in range(2)]
    outcomes = sorted((ended(process) for process in processes), key=lambda outcome: outcome.exit)
    assert outcomes[0].exit == 0
    assert outcomes[1].exit == 0 or "another crnr is writing it; wait" in outcomes[1].err
    assert installed(crnr.here / "models") == FETCHED


@pytest.mark.slow
def test_huggingface_hub_is_imported_by_downloads_only(crnr: Runner) -> None:
    make_images(crnr.here / "photos", per_class=2, size=(40, 36))
    code = (
        "import sys\nfrom crnr_cli.cli import main\n"
        "try:\n    main()\nfinally:\n    assert 'huggingface_hub' not in sys.modules\n"
    )
    program = (sys.executable, "-c", code)
    for command in ("model list", "model get efficientnet-lite0", "model get none", "build photos"):
        assert "AssertionError" not in crnr.process(*command.split(), program=program).err
