"""Model folders on a hub: a real client of ``huggingface_hub`` and a small hub on loopback."""

import sys

import pytest

from fake_hub import TOKEN, running_hub
from recollect.agents import hub

constants = pytest.importorskip("huggingface_hub.constants")
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # of the client's own requests


@pytest.fixture
def online(monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)  # the fake takes large files as git-lfs does
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with running_hub() as fake:
        yield fake


@pytest.fixture
def folder(tmp_path):
    """A folder with every file that is shared, and two that are not."""
    source = tmp_path / "model"
    source.mkdir()
    for name in (*hub.FILES, "weights.pkl", "setup.py"):
        (source / name).write_bytes(f"---\nname: {name}\n---\n".encode())
    return source


def test_what_goes_up_comes_down(online, folder, tmp_path):
    address = hub.upload(folder, "me/model", token=TOKEN, endpoint=online.endpoint)
    assert address == f"{online.endpoint}/me/model"
    assert set(online.files("me/model")) == {*hub.FILES, ".gitattributes"}
    assert len(online.repositories["me/model"]) == 2  # made, and written in one commit
    found = hub.download("me/model", endpoint=online.endpoint, cache=tmp_path / "cache")
    assert {path.name: path.read_bytes() for path in found.iterdir()} == {
        name: (folder / name).read_bytes() for name in hub.FILES
    }


def test_an_existing_repository_gets_one_more_commit_and_old_ones_can_be_read(online, folder, tmp_path):
    hub.upload(folder, "me/model", token=TOKEN, endpoint=online.endpoint)
    (folder / "spec.json").write_text("new")
    hub.upload(folder, "me/model", token=TOKEN, endpoint=online.endpoint)
    older, newer = (commit for commit, _ in online.repositories["me/model"][1:])
    there = {"endpoint": online.endpoint, "cache": tmp_path / "cache"}
    assert (hub.download("me/model", **there) / "spec.json").read_text() == "new"
    assert (hub.download("me/model", revision=newer, **there) / "spec.json").read_text() == "new"
    assert "name: spec.json" in (hub.download("me/model", revision=older, **there) / "spec.json").read_text()


def test_pickles_and_code_of_a_repository_are_never_fetched(online, tmp_path):
    files = dict.fromkeys(hub.REQUIRED, b"{}")
    hostile = ["pytorch_model.bin", "model.pkl", "modeling.py", "../../outside.json", "sub/config.json"]
    online.commit("me/hostile", {**files, **dict.fromkeys(hostile, b"bad")})
    found = hub.download("me/hostile", endpoint=online.endpoint, cache=tmp_path / "cache")
    assert {path.name for path in found.iterdir()} == set(hub.REQUIRED)
    fetched = {line.rsplit("/", 1)[-1] for line in online.requests if "/resolve/" in line}
    assert fetched == set(hub.REQUIRED)


@pytest.mark.parametrize("name", hub.REQUIRED)
def test_a_repository_without_a_model_says_what_is_missing(online, tmp_path, name):
    online.commit("me/other", {other: b"{}" for other in hub.REQUIRED if other != name})
    with pytest.raises(ValueError, match=rf"^hub:me/other holds no model of this library: {name} is missing in it$"):
        hub.download("me/other", endpoint=online.endpoint, cache=tmp_path / "cache")


@pytest.mark.parametrize(
    ("repository", "revision", "reason"),
    [
        ("me/nothing", None, "there is no such repository"),
        ("me/model", "v9", "it has no such revision"),
        ("two words", None, "Repo id must use alphanumeric chars"),
    ],
)
def test_what_is_not_there_is_one_line(online, folder, tmp_path, repository, revision, reason):
    online.commit("me/model", dict.fromkeys(hub.REQUIRED, b"{}"))
    with pytest.raises(ValueError, match=f"^hub:{repository}: {reason}") as caught:
        hub.download(repository, revision=revision, endpoint=online.endpoint, cache=tmp_path / "cache")
    assert "\n" not in str(caught.value)


def test_who_may_not_write_hears_so_in_one_line(online, folder):
    with pytest.raises(ValueError, match=r"^hub:me/model: .*401") as caught:
        hub.upload(folder, "me/model", token="hf_stranger", endpoint=online.endpoint)
    assert "\n" not in str(caught.value)
    assert not online.repositories


def test_only_model_folders_go_up(online, tmp_path):
    with pytest.raises(ValueError, match=r"give a model folder: config.json, spec.json, weights.safetensors"):
        hub.upload(tmp_path, "me/model", token=TOKEN, endpoint=online.endpoint)
    assert online.requests == []


def test_without_a_connection_the_copy_in_the_cache_is_used(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    with running_hub() as fake:
        fake.commit("me/model", {name: (folder / name).read_bytes() for name in hub.REQUIRED})
        there = {"endpoint": fake.endpoint, "cache": tmp_path / "cache"}
        online = hub.download("me/model", **there)
    assert hub.download("me/model", **there) == online
    with pytest.raises(ValueError, match=r"^hub:me/other: the hub cannot be reached, and no copy is in the cache"):
        hub.download("me/other", **there)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert hub.download("me/model", **there) == online


def test_without_the_client_the_extra_is_named(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ValueError, match=r"pip install 'recollect-torch\[hub\]'"):
        hub.upload(folder, "me/model")
    with pytest.raises(ValueError, match=r"pip install 'recollect-torch\[hub\]'"):
        hub.download("me/model")
