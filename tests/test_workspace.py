"""The folder of the file tools: whatever the path, nothing outside is read or written."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import stat
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yiemagent.errors import ConfigurationError, ToolError
from yiemagent.workspace import Workspace, workspace_from

SECRET = b"secret"


@pytest.fixture
def place(tmp_path):
    """A root with a file and a folder, and a secret beside it."""
    root = tmp_path / "root"
    (root / "folder" / "deep").mkdir(parents=True)
    (root / "a.txt").write_bytes(b"hello")
    (root / "folder" / "b.txt").write_bytes(b"inside")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_bytes(SECRET)
    (tmp_path / "root-old").mkdir()
    (tmp_path / "root-old" / "secret.txt").write_bytes(SECRET)
    (tmp_path / "ROOT").mkdir(exist_ok=True)
    (tmp_path / "ROOT" / "secret.txt").write_bytes(SECRET)
    return root


@pytest.fixture
def space(place):
    """The workspace over it."""
    return Workspace(place)


def snapshot(folder):
    """Everything below a folder, with its content."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        found[name] = path.read_bytes() if path.is_file() else str(path.is_dir())
    return found


def names_in(folder):
    """What is in a folder, sorted."""
    return sorted(path.name for path in folder.iterdir())


# -- paths that are fine --


@pytest.mark.parametrize(
    "path, content",
    [
        ("a.txt", b"hello"),
        ("./a.txt", b"hello"),
        ("folder//b.txt", b"inside"),
        ("folder/../a.txt", b"hello"),
        ("folder/deep/../../a.txt", b"hello"),
        ("{root}/folder/b.txt", b"inside"),
        ("{root}/folder/../a.txt", b"hello"),
    ],
)
def test_paths_inside_are_read(place, space, path, content):
    """Relative paths, absolute ones below the root, and `..` that stays inside lead to the file."""
    assert space.read(path.format(root=place), 100) == content


@pytest.mark.parametrize(
    "target", ["../a.txt", "{root}/a.txt", "deep/../../a.txt", "deep/up/a.txt"]
)
def test_links_that_stay_inside_are_followed(place, space, target):
    """Relative and absolute links, and links to links, are resolved below the root."""
    (place / "folder" / "deep" / "up").symlink_to("../..")
    (place / "folder" / "link").symlink_to(target.format(root=place))

    assert space.read("folder/link", 100) == b"hello"


def test_a_root_behind_a_link_has_two_names(place, tmp_path):
    """An absolute path below the root's name as it was given is inside, too."""
    (tmp_path / "alias").symlink_to(place)
    space = Workspace(tmp_path / "alias")

    assert space.read(f"{tmp_path}/alias/a.txt", 100) == b"hello"
    assert space.read(f"{place}/a.txt", 100) == b"hello"


# -- paths that lead out --

ESCAPES = [
    "..",
    "../outside/secret.txt",
    "folder/../../outside/secret.txt",
    "/etc/passwd",
    "{root}/../outside/secret.txt",
    "{root}-old/secret.txt",
    "{upper}/secret.txt",
    "to-file",
    "to-folder/secret.txt",
    "to-parent/outside/secret.txt",
    "to-root-of-all/etc/passwd",
    "chain/secret.txt",
    "folder/deep/../../../outside/secret.txt",
    "to-proc/root/etc/passwd",
]


@pytest.fixture
def links(place):
    """Links out of the root, of every kind."""
    outside = place.parent / "outside"
    (place / "to-file").symlink_to(outside / "secret.txt")
    (place / "to-folder").symlink_to(outside)
    (place / "to-parent").symlink_to("..")
    (place / "to-root-of-all").symlink_to("/")
    (place / "to-proc").symlink_to("/proc/self")
    (place / "chain").symlink_to("folder/next")
    (place / "folder" / "next").symlink_to("../../outside")


@pytest.mark.parametrize("path", ESCAPES)
@pytest.mark.usefixtures("links")
def test_no_path_reads_outside(place, space, path):
    """`..`, absolute paths, look-alikes of the root's name, another case of it and links out of it are refused."""
    upper = place.parent / "ROOT"
    with pytest.raises(ToolError, match="is outside of the folder"):
        space.read(path.format(root=place, upper=upper), 100)


@pytest.mark.parametrize("path", ESCAPES)
@pytest.mark.usefixtures("links")
def test_no_path_writes_outside(place, space, path):
    """The same paths are refused for writing, and nothing anywhere changes."""
    upper = place.parent / "ROOT"
    before = snapshot(place.parent)
    with pytest.raises(ToolError, match="is outside of the folder"):
        space.write(path.format(root=place, upper=upper), b"evil")

    assert snapshot(place.parent) == before


@pytest.mark.parametrize("path", ESCAPES)
@pytest.mark.usefixtures("links")
def test_no_path_lists_outside(place, space, path):
    """The same paths are refused for listing, and as a folder to run in."""
    path = path.format(root=place, upper=place.parent / "ROOT")
    with pytest.raises(ToolError, match="is outside of the folder"):
        list(space.files(path))
    with pytest.raises(ToolError, match="is outside of the folder"):
        space.folder(path)


@pytest.mark.parametrize(
    "path, words",
    [
        ("", "the path is empty"),
        ("  ", "the path is empty"),
        ("a\0b", "null character"),
        ("x" * 300, "name too long"),
        ("d/" * 3000, "longer than a path"),
        ("\ud800", "characters that no path does"),
        ("loop", "symbolic link"),
        ("none.txt", "No such file"),
        ("a.txt/b", "Not a directory"),
        ("folder", "is a folder, not a file"),
    ],
)
def test_what_is_no_file_is_an_error(place, space, path, words):
    """NUL, long names, circles of links, folders and missing files are each told in words."""
    (place / "loop").symlink_to("loop")
    with pytest.raises(ToolError, match=f"(?i){words}"):
        space.read(path, 100)


def test_devices_pipes_and_sockets_are_refused(place, space):
    """A named pipe and a socket in the root are refused at once, though opening one would block."""
    os.mkfifo(place / "pipe")
    server = socket.socket(socket.AF_UNIX)
    here = os.open(place, os.O_RDONLY)
    try:
        server.bind(f"/proc/self/fd/{here}/socket")
        with pytest.raises(ToolError, match="is a named pipe, not a file"):
            space.read("pipe", 100)
        with pytest.raises(ToolError, match="is a socket, not a file"):
            space.write("socket", b"x")
    finally:
        server.close()
        os.close(here)


def test_a_device_below_the_root_is_refused():
    """A workspace over `/dev` reads no device."""
    with pytest.raises(ToolError, match="is a device, not a file"):
        Workspace("/dev").read("zero", 100)


def test_a_file_that_is_too_large_is_refused(space):
    """One byte more than allowed is an error, as many as allowed are not."""
    assert space.read("a.txt", 5) == b"hello"
    with pytest.raises(ToolError, match="larger than 4 bytes"):
        space.read("a.txt", 4)


def test_a_file_without_a_size_is_held_to_its_limit():
    """What tells a size of 0 and gives more is refused beyond the limit all the same."""
    with pytest.raises(ToolError, match="larger than 10 bytes"):
        Workspace("/proc").read("meminfo", 10)


# -- swapped between check and use --


def test_a_folder_swapped_for_a_link_leads_nowhere_else(place, space):
    """Once a folder is walked into, what is read and written there is in that folder, whatever takes its name."""
    with space.walk("folder/b.txt") as walked:
        (place / "folder").rename(place / "moved")
        (place / "folder").symlink_to(place.parent / "outside")
        (place.parent / "outside" / "b.txt").write_bytes(SECRET)

        assert walked.read("folder/b.txt", 100) == b"inside"
        walked.write("folder/b.txt", b"new", overwrite=True, expected=None)
    assert (place / "moved" / "b.txt").read_bytes() == b"new"
    assert (place.parent / "outside" / "b.txt").read_bytes() == SECRET


def test_a_file_swapped_for_a_link_is_not_followed(place, space):
    """A file that became a link after it was looked at is neither read nor written through."""
    with space.walk("a.txt") as walked:
        (place / "a.txt").unlink()
        (place / "a.txt").symlink_to(place.parent / "outside" / "secret.txt")
        with pytest.raises(ToolError, match="a symbolic link by now"):
            walked.read("a.txt", 100)
        with pytest.raises(OSError, match="symbolic link"):
            os.close(walked.open(os.O_RDONLY))
        with pytest.raises(ToolError, match="a symbolic link by now"):
            walked.write("a.txt", b"x", overwrite=True, expected=None)

    assert (place.parent / "outside" / "secret.txt").read_bytes() == SECRET


def test_a_link_that_is_swapped_all_the_time_never_leads_out(place, space):
    """While another thread turns a folder into a link and back, no read gives the secret and no write meets it."""
    outside = place.parent / "outside"
    (outside / "b.txt").write_bytes(SECRET)
    (place / "link").symlink_to(outside)
    ended = threading.Event()

    def swap():
        while not ended.is_set():
            for first, second in (("folder", "kept"), ("link", "folder")):
                (place / first).rename(place / second)
            for first, second in (("folder", "link"), ("kept", "folder")):
                (place / first).rename(place / second)

    thread = threading.Thread(target=swap, daemon=True)
    thread.start()
    seen = set()
    for _ in range(1500):
        try:
            seen.add(space.read("folder/b.txt", 100))
            with space.walk("folder/b.txt") as walked:  # without making the folder anew
                walked.write("folder/b.txt", b"mine", overwrite=True, expected=None)
        except ToolError as error:
            seen.add(type(error))
    ended.set()
    thread.join()

    assert seen <= {b"inside", b"mine", ToolError}
    assert (outside / "b.txt").read_bytes() == SECRET
    assert names_in(outside) == ["b.txt", "secret.txt"]


# -- writing --


def test_a_file_is_written_with_its_folders(place, space):
    """A new file is told apart, and folders on the way are made."""
    assert space.write("new/deep/c.txt", b"1") is True
    assert space.write("new/deep/c.txt", b"2") is False
    assert (place / "new" / "deep" / "c.txt").read_bytes() == b"2"


def test_a_file_keeps_its_permissions(place, space):
    """Replacing a file changes its content only, and takes set-id bits away."""
    (place / "a.txt").chmod(0o4750)
    space.write("a.txt", b"new")

    assert stat.S_IMODE((place / "a.txt").stat().st_mode) == 0o750


def test_a_read_only_file_stays(place, space):
    """A file that nobody may write is not replaced, though its folder would allow it."""
    (place / "a.txt").chmod(0o444)
    with pytest.raises(ToolError, match="is read-only"):
        space.write("a.txt", b"new")

    assert (place / "a.txt").read_bytes() == b"hello"


def test_a_hard_link_is_not_written_through(place, space):
    """What shares its content with a file outside gets a content of its own."""
    os.link(place.parent / "outside" / "secret.txt", place / "shared.txt")
    space.write("shared.txt", b"mine")

    assert (place.parent / "outside" / "secret.txt").read_bytes() == SECRET


def test_a_link_to_a_file_inside_is_written_through(place, space):
    """The link stays a link, and the file behind it changes."""
    (place / "link").symlink_to("a.txt")
    space.write("link", b"new")

    assert (place / "link").is_symlink()
    assert (place / "a.txt").read_bytes() == b"new"


def test_a_file_that_is_there_stays_unless_overwriting_is_allowed(place, space):
    """Without overwrite a taken name is an error, and a free one is not."""
    with pytest.raises(ToolError, match="is there already"):
        space.write("a.txt", b"x", overwrite=False)
    space.write("free.txt", b"x", overwrite=False)

    assert (place / "a.txt").read_bytes() == b"hello"
    assert (place / "free.txt").read_bytes() == b"x"


def test_a_file_that_appeared_meanwhile_stays(place, space):
    """A name that is taken between the look and the writing is not overwritten, and nothing half-written stays."""
    with space.walk("late.txt") as walked:
        walked._fill("t.tmp", b"mine", None)
        (place / "late.txt").write_bytes(b"theirs")
        with pytest.raises(ToolError, match="is there already"):
            walked._put_new("t.tmp", "late.txt", overwrite=False)

    assert (place / "late.txt").read_bytes() == b"theirs"


@pytest.mark.parametrize("now", [b"hallo", b"hello and more", None])
def test_a_file_that_changed_is_not_written(place, space, now):
    """Where the content is not the expected one any more, or the file is gone, nothing is written."""
    (place / "a.txt").unlink()
    if now is not None:
        (place / "a.txt").write_bytes(now)
    with pytest.raises(ToolError, match="has changed meanwhile"):
        space.write("a.txt", b"new", expected=b"hello")

    assert names_in(place) == sorted(["folder"] + ["a.txt"] * (now is not None))


def test_a_failed_write_leaves_nothing(place, space):
    """Where a file can't be put in its place, the temporary one is removed."""
    (place / "folder").chmod(0o777)
    with pytest.raises(ToolError, match="is a folder"):
        space.write("folder", b"x")
    with pytest.raises(ToolError, match=r"(?i)file name too long"):
        space.write("folder/" + "y" * 300, b"x")

    assert names_in(place / "folder") == ["b.txt", "deep"]


def test_a_disk_that_is_full_leaves_the_old_file(place, space):
    """Where the new content can't be written, the old one stays whole and nothing else is left."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(ToolError, match="File too large"):
            space.write("a.txt", b"x" * 5000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert (place / "a.txt").read_bytes() == b"hello"
    assert names_in(place) == ["a.txt", "folder"]


# -- listing --


def test_files_are_listed_sorted_without_links(place, space):
    """Every ordinary file comes once, links and named pipes don't, and skipped folders are not looked into."""
    (place / "loop").symlink_to(".")
    (place / "link.txt").symlink_to("a.txt")
    os.mkfifo(place / "pipe")
    (place / ".git").mkdir()
    (place / ".git" / "config").write_bytes(b"")
    (place / "folder" / "deep" / "c.txt").write_bytes(b"")

    assert list(space.files(".", skipped={".git"})) == [
        "a.txt",
        "folder/b.txt",
        "folder/deep/c.txt",
    ]
    assert list(space.files("folder/deep")) == ["folder/deep/c.txt"]
    assert list(space.files("a.txt")) == ["a.txt"]


def test_a_folder_that_vanished_is_passed_over(place, space):
    """What goes while it is listed is not an error."""
    found = []
    for name in space.files("."):
        found.append(name)
        if name == "a.txt":
            (place / "folder" / "b.txt").unlink()
            (place / "folder" / "deep").rmdir()
            (place / "folder").rmdir()

    assert found == ["a.txt"]


def test_a_folder_to_run_in_is_a_real_path(place, space):
    """Links inside are resolved to the real folder; a file is none."""
    (place / "link").symlink_to("folder/deep")

    assert space.folder("link") == place / "folder" / "deep"
    assert space.folder(".") == place
    with pytest.raises(ToolError, match="Not a directory"):
        space.folder("a.txt")


# -- the root --


def test_the_root_comes_from_the_environment(place, monkeypatch):
    """`YIEMAGENT_ROOT` names the root, else it is the working folder."""
    monkeypatch.chdir(place / "folder")

    assert workspace_from({"YIEMAGENT_ROOT": str(place)}).root == place
    assert workspace_from({}).root == place / "folder"


def test_a_root_that_is_no_folder_is_refused(place):
    """A missing folder and a file are configuration errors."""
    for wrong in (place / "none", place / "a.txt"):
        with pytest.raises(ConfigurationError, match="there is no folder"):
            Workspace(wrong)


@given(st.text(max_size=40))
def test_any_text_is_refused_or_inside(tmp_path_factory, text):
    """Whatever the path, writing is an error in words, or the file is below the root."""
    outer = tmp_path_factory.mktemp("any")
    root = outer / "root"
    root.mkdir()
    with contextlib.suppress(ToolError):
        Workspace(root).write(text, b"x")

    assert names_in(outer) == ["root"]
