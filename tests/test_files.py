import pytest

from recollect import files


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
