import errno
import io
import zipfile

import numpy as np
import pytest

from recollect import files, lazy


def test_a_file_is_replaced_in_one_stroke(tmp_path):
    path = tmp_path / "a.txt"
    files.write_atomically(path, "old")
    files.write_atomically(path, b"new")
    assert path.read_text() == "new"
    assert [found.name for found in tmp_path.iterdir()] == ["a.txt"]


def test_what_stood_there_survives_a_failure(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    files.write_atomically(path, "old")
    with pytest.raises(ValueError, match="half"), files.new_file(path) as unfinished:
        unfinished.write_text("ne")
        raise ValueError("half written")

    def full(path, content):
        path.write_bytes(content[:1])
        raise OSError("no space left")

    monkeypatch.setattr(files, "write_synced", full)
    with pytest.raises(OSError, match="no space"):
        files.write_atomically(path, "new")
    assert path.read_text() == "old"
    assert [found.name for found in tmp_path.iterdir()] == ["a.txt"]


def test_a_folder_appears_whole_or_not_at_all(tmp_path):
    path = tmp_path / "folder"
    with pytest.raises(OSError, match="no space"), files.new_folder(path) as unfinished:
        (unfinished / "first").write_text("1")
        raise OSError("no space left")
    assert list(tmp_path.iterdir()) == []
    for text in ("1", "2"):  # the second one takes the place of the first
        with files.new_folder(path) as unfinished:
            assert not (unfinished / "first").exists()
            (unfinished / text).write_text(text)
    assert [found.name for found in tmp_path.iterdir()] == ["folder"]
    assert [found.name for found in path.iterdir()] == ["2"]
    (tmp_path / ".writing-folder").mkdir()  # as a process leaves it that is killed
    with files.new_folder(path) as unfinished:
        (unfinished / "3").touch()
    assert [found.name for found in tmp_path.iterdir()] == ["folder"]


def test_a_link_to_a_folder_stays_and_its_folder_is_replaced(tmp_path):
    (tmp_path / "large").mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "large")
    for text in ("1", "2", "3"):
        with files.new_folder(link) as unfinished:
            (unfinished / text).touch()
    assert link.is_symlink() and [found.name for found in (tmp_path / "large").iterdir()] == ["3"]
    assert sorted(found.name for found in tmp_path.iterdir()) == ["large", "link"]


def test_damaged_arrays_are_told_from_a_machine_in_need(tmp_path, monkeypatch):
    path = tmp_path / "a.npz"
    np.savez(path, numbers=np.arange(100))
    assert files.read_arrays(path)["numbers"].tolist() == [*range(100)]
    whole = path.read_bytes()
    for broken in (b"", whole[:300], whole[:200] + bytes([whole[200] ^ 1]) + whole[201:]):
        path.write_bytes(broken)
        with pytest.raises(ValueError, match=r"a\.npz: it is damaged or no \.npz file"):
            files.read_arrays(path)
    path.write_bytes(whole)
    for error in (OSError(errno.EMFILE, "Too many open files"), OSError(errno.EIO, "I/O error"), MemoryError("full")):

        def fail(*_, error=error, **__):
            raise error

        with monkeypatch.context() as patch, pytest.raises(type(error), match=str(error.args[-1])):
            patch.setattr(lazy.np, "load", fail)
            files.read_arrays(path)
    for missing in (tmp_path / "nowhere.npz", path / "below.npz"):
        with pytest.raises(ValueError, match=r"\.npz: there is no such file$"):
            files.read_arrays(missing)
    with pytest.raises(ValueError, match=r"it is damaged or no \.npz file"):
        files.read_arrays(tmp_path)


def test_a_damaged_header_that_asks_for_all_memory_is_damage(tmp_path):
    path, content = tmp_path / "a.npz", io.BytesIO()
    np.save(content, np.arange(100))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("numbers.npy", content.getvalue())
    whole = path.read_bytes()
    damaged = whole.replace(b"(100,), }" + b" " * 12, b"(1" + b"0" * 14 + b",), }", 1)
    assert len(damaged) == len(whole)
    path.write_bytes(damaged)
    with pytest.raises(ValueError, match="it is damaged"):
        files.read_arrays(path)
