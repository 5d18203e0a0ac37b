"""Versions of tool files: what they say of themselves, how they are written, kept and brought back."""

from __future__ import annotations

import hashlib
import os
from datetime import UTC, datetime

import pytest

from yiemagent.errors import ToolError, ToolNotFound
from yiemagent.tool_versions import (
    VERSIONS,
    check_place,
    history,
    marked,
    replace_file,
    revert,
    take_back,
    write_new_file,
)


@pytest.fixture
def folder(tmp_path):
    """A folder of tools."""
    folder = tmp_path / "tools"
    folder.mkdir()
    return folder


def files(folder):
    """Every file below a folder, with what it holds."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


# -- what a file says of itself ---------------------------------------------------------------------------------------


def test_a_written_file_says_where_it_comes_from(folder):
    """Author, time, approval and hash stand in two comment lines at its end, and are read from there."""
    text = marked("x = 1\n", author="model", approval="Ann\nafter  a look")
    (folder / "a.py").write_text(text)
    (version,) = history(folder, "a")

    assert text.startswith("x = 1\n\n# Written by a model, ")
    assert text.split("\n")[2].endswith("; approved: Ann after a look")
    assert hashlib.sha256(b"x = 1\n").hexdigest() in text
    assert max(map(len, text.split("\n"))) <= 100
    assert (version.author, version.approval, version.changed) == (
        "model",
        "Ann after a look",
        False,
    )
    assert (version.number, version.in_use) == (1, True)
    assert abs((datetime.now(UTC) - version.time).total_seconds()) < 60
    assert version.sha256 == hashlib.sha256(text.encode()).hexdigest()


def test_what_nobody_approved_says_so(folder):
    """Without an approval the file says that there was none."""
    (folder / "a.py").write_text(marked("x = 1\n", author="person"))
    (version,) = history(folder, "a")

    assert "not approved by a person" in (folder / "a.py").read_text()
    assert (version.author, version.approval) == ("person", None)


@pytest.mark.parametrize(
    "edit",
    [
        lambda text: text.replace("x = 1", "x = 2"),
        lambda text: f"\n{text}",
        lambda text: text.replace("a: ", "a:  "),
    ],
)
def test_a_change_behind_its_back_shows(folder, edit):
    """A file whose text no longer fits its own hash was changed; who approved it then says nothing any more."""
    (folder / "a.py").write_text(edit(marked("x = 1  # a: b\n", author="model", approval="Ann")))
    (version,) = history(folder, "a")

    assert version.changed
    assert version.author == "model"
    assert version.approval is None


def test_other_line_ends_are_no_change(folder):
    """A file that was given the line ends of another system is still what was written."""
    text = marked("x = 1\ny = 2\n", author="model")
    (folder / "a.py").write_bytes(text.replace("\n", "\r\n").encode())

    assert not history(folder, "a")[0].changed


def test_a_persons_file_says_nothing(folder):
    """A file without these lines is a person's, written when the file system says."""
    path = folder / "a.py"
    path.write_bytes(b"x = '\xff'\n")
    os.utime(path, (1e9, 1e9))
    (version,) = history(folder, "a")

    assert (version.author, version.changed) == ("person", False)
    assert version.time == datetime.fromtimestamp(1e9, UTC)


# -- writing ----------------------------------------------------------------------------------------------------------


def test_a_new_file_appears_whole_and_alone(folder):
    """The file is there with all it holds, and nothing else."""
    write_new_file(folder / "a.py", "é = 1\n")

    assert files(folder) == {"a.py": "é = 1\n".encode()}


def test_a_file_that_is_there_is_not_written_over(folder):
    """A new file in a place that is taken, by a link that leads nowhere too, changes nothing."""
    (folder / "a.py").write_text("mine")
    (folder / "b.py").symlink_to(folder.parent / "outside.py")
    for name in ("a.py", "b.py"):
        with pytest.raises(FileExistsError):
            write_new_file(folder / name, "theirs")

    assert files(folder) == {"a.py": b"mine"}
    assert not (folder.parent / "outside.py").exists()


def test_without_links_a_new_file_is_as_safe(folder, monkeypatch):
    """On a file system that has no links, the file appears all the same, and takes no place that is taken."""

    def link(*_):
        raise PermissionError("no links here")

    monkeypatch.setattr(os, "link", link)
    write_new_file(folder / "a.py", "one")
    with pytest.raises(FileExistsError):
        write_new_file(folder / "a.py", "two")

    assert files(folder) == {"a.py": b"one"}


def test_nothing_stays_of_a_file_that_cannot_be_written(folder, monkeypatch):
    """Where the disk fails, no half file is left, and what was there is as it was."""
    (folder / "a.py").write_text("one")

    def fsync(_):
        raise OSError("the disk is full")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="disk is full"):
        write_new_file(folder / "b.py", "two")
    with pytest.raises(OSError, match="disk is full"):
        replace_file(folder / "a.py", b"two")

    assert files(folder) == {"a.py": b"one"}


def test_a_replaced_version_is_kept(folder):
    """The earlier version is kept with its time, the new one has its place and its mode."""
    path = folder / "a.py"
    path.write_text("one")
    path.chmod(0o600)
    os.utime(path, (1e9, 1e9))
    kept = replace_file(path, b"two")

    assert files(folder) == {"a.py": b"two", f"{VERSIONS}/a/0001.py": b"one"}
    assert (kept.number, kept.in_use) == (1, False)
    assert kept.time == datetime.fromtimestamp(1e9, UTC)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_version_is_never_kept_in_anothers_place(folder):
    """Where a number is taken, by whatever it is, the next is used."""
    path = folder / "a.py"
    path.write_text("one")
    taken = folder / VERSIONS / "a" / "0001.py"
    taken.mkdir(parents=True)

    assert replace_file(path, b"two").number == 2
    assert taken.is_dir()


def test_a_writing_can_be_taken_back(folder):
    """Taken back, a new file is gone and a replaced one is what it was, without a trace."""
    path = folder / "a.py"
    write_new_file(path, "one")
    take_back(path, replace_file(path, b"two"))
    assert [p.name for p in folder.rglob("*")] == ["a.py"]
    assert path.read_text() == "one"
    replace_file(path, b"two")
    take_back(path, replace_file(path, b"three"))
    assert files(folder) == {"a.py": b"two", f"{VERSIONS}/a/0001.py": b"one"}
    take_back(path, None)

    assert not path.exists()


def test_a_place_must_be_free_or_a_plain_files(folder):
    """Links, folders and names that differ in capitals only are left alone; so are links where versions are kept."""
    outside = folder.parent / "outside"
    outside.mkdir()
    (folder / "linked.py").symlink_to(outside / "x.py")
    (folder / "dir.py").mkdir()
    (folder / "Shout.py").write_text("")
    (folder / "fine.py").write_text("")
    check_place(folder, "fine")
    check_place(folder, "new")
    check_place(folder / "nowhere", "new")
    for name, said in (
        ("linked", "no plain file"),
        ("dir", "no plain file"),
        ("shout", "too much like"),
    ):
        with pytest.raises(ToolError, match=said):
            check_place(folder, name)
    (folder / VERSIONS).symlink_to(outside)
    with pytest.raises(ToolError, match="is no folder"):
        check_place(folder, "fine")
    (folder / VERSIONS).unlink()
    (folder / VERSIONS).mkdir()
    (folder / VERSIONS / "fine").write_text("")
    with pytest.raises(ToolError, match="is no folder"):
        check_place(folder, "fine")

    check_place(folder, "new")


# -- looking back -----------------------------------------------------------------------------------------------------


def test_the_history_goes_from_the_oldest_to_the_one_in_use(folder):
    """Versions have numbers in the order in which they came; other files among them are passed over."""
    path = folder / "a.py"
    path.write_text("one")
    for text in (b"two", b"three"):
        replace_file(path, text)
    (folder / VERSIONS / "a" / "notes.py").write_text("")
    versions = history(folder, "a")

    assert [version.number for version in versions] == [1, 2, 3]
    assert [version.in_use for version in versions] == [False, False, True]
    assert [version.path.read_text() for version in versions] == ["one", "two", "three"]


def test_what_never_was_has_no_history(folder):
    """A name without file and without versions is refused."""
    with pytest.raises(ToolNotFound, match="no tool file 'a'"):
        history(folder, "a")


def test_an_earlier_version_comes_back(folder):
    """Without a number it is the latest that differs; the one that was in use is kept, so that can be undone too."""
    path = folder / "a.py"
    path.write_text("one")
    replace_file(path, b"two")
    replace_file(path, b"two")
    now = revert(folder, "a")
    assert (path.read_text(), now.number, now.in_use) == ("one", 4, True)
    revert(folder, "a")
    assert path.read_text() == "two"
    revert(folder, "a", 1)

    assert path.read_text() == "one"
    assert [v.path.read_text() for v in history(folder, "a")] == [
        "one",
        "two",
        "two",
        "one",
        "two",
        "one",
    ]


def test_a_removed_file_comes_back(folder):
    """Where the file is gone, the latest version that was kept takes its place."""
    path = folder / "a.py"
    path.write_text("one")
    replace_file(path, b"two")
    path.unlink()
    assert [version.in_use for version in history(folder, "a")] == [False]

    assert revert(folder, "a").in_use
    assert path.read_text() == "one"


def test_there_must_be_something_to_go_back_to(folder):
    """Without an earlier version, or with a number that is none or is in use, nothing is changed."""
    path = folder / "a.py"
    path.write_text("one")
    with pytest.raises(ToolNotFound, match="'a' has no earlier version"):
        revert(folder, "a")
    with pytest.raises(ToolNotFound, match="no version 7 to go back to; it has: no earlier one"):
        revert(folder, "a", 7)
    replace_file(path, b"two")
    for number, said in ((2, "version 2 of 'a' is the one in use"), (7, "go back to; it has: 1")):
        with pytest.raises(ToolNotFound, match=said):
            revert(folder, "a", number)
    (folder / "b.py").symlink_to(path)
    with pytest.raises(ToolError, match="no plain file"):
        revert(folder, "b")

    assert path.read_text() == "two"
