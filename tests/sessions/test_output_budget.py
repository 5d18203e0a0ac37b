"""What tools give is cut to a budget, and kept whole in a file."""

from __future__ import annotations

import gc
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.loops import parallel, run, tool
from yiemagent.errors import ConfigurationError, ToolError
from yiemagent.hooks import AfterToolCallResult
from yiemagent.messages import ImageContent, TextContent, ToolResultMessage
from yiemagent.sessions.clipping import size_bytes
from yiemagent.sessions.output_budget import OutputBudget, OutputLimit, cut_output
from yiemagent.sessions.session import Session
from yiemagent.testing import ScriptedModel, call, calls
from yiemagent.tool import AgentToolResult

LINES = "".join(f"line {n}\n" for n in range(1, 5_001))
TEXTS = st.text(st.sampled_from("ab東🗼\n"), max_size=80)


# -- cutting --


@given(
    TEXTS,
    st.none() | st.integers(1, 40),
    st.none() | st.integers(1, 6),
    st.sampled_from(["head", "tail"]),
)
def test_what_is_kept_is_an_end_of_the_text_within_the_limit(text, max_bytes, max_lines, keep):
    """It is the end that is wanted, no character is cut, and all of a text within the limit stays."""
    kept = cut_output(text, OutputLimit(max_bytes=max_bytes, max_lines=max_lines, keep=keep))
    lines = len(text.splitlines()) if text else 0
    fits = (max_bytes is None or size_bytes(text) <= max_bytes) and (
        max_lines is None or lines <= max_lines
    )

    assert (kept is None) == fits
    if kept is not None:
        assert text.startswith(kept) if keep == "head" else text.endswith(kept)
        assert max_bytes is None or size_bytes(kept) <= max_bytes
        assert max_lines is None or len(kept.splitlines()) <= max_lines


@pytest.mark.parametrize(
    ("text", "limit", "kept"),
    [
        ("a\nb\nc\n", {"max_lines": 2}, "a\nb\n"),
        ("a\nb\nc\n", {"max_lines": 2, "keep": "tail"}, "b\nc\n"),
        ("a\nb\nc", {"max_lines": 3}, None),
        ("a\nb\n", {"max_lines": 2}, None),
        ("a\nb\n", {"max_lines": 2, "keep": "tail"}, None),
        ("aaa\nbbb\nccc\n", {"max_bytes": 9}, "aaa\nbbb\n"),
        ("aaa\nbbb\nccc\n", {"max_bytes": 9, "keep": "tail"}, "bbb\nccc\n"),
        ("a\nbbbbbbbb", {"max_bytes": 9}, "a\nbbbbbbb"),
        ("bbbbbbbbbb", {"max_bytes": 4}, "bbbb"),
        ("東京東京", {"max_bytes": 10}, "東京東"),
        ("東京東京", {"max_bytes": 10, "keep": "tail"}, "京東京"),
        ("東京", {"max_bytes": 2}, ""),
    ],
)
def test_lines_stay_whole_where_their_end_is_near(text, limit, kept):
    """A line is cut only where it is most of what is kept, a character never."""
    assert cut_output(text, OutputLimit(**limit)) == kept


# -- in an agent --


def worked(output, budget, *, name="work", **options):
    """The result message that a tool's output becomes."""
    made = tool(name, lambda *_: output, **options)
    done = run([calls(call(name, call_id="c/1")), "fine"], made, after_tool_call=budget)
    [message] = [m for m in done.messages if isinstance(m, ToolResultMessage)]
    return message


def test_what_is_within_the_budget_stays_as_it_is(tmp_path):
    """Fifty kilobytes and two thousand lines pass, and no file is made."""
    text = ("x" * 24 + "\n") * 2_000
    budget = OutputBudget(tmp_path / "out")

    assert worked(text, budget).text == text
    assert worked("y" * 50 * 1024, budget).text == "y" * 50 * 1024
    assert not (tmp_path / "out").exists()


def test_a_cut_says_so_and_the_whole_is_in_a_file(tmp_path):
    """The model sees the beginning, how much there is, and where; details say the same to programs."""
    message = worked(LINES, OutputBudget(tmp_path / "out"))

    kept, _, note = message.text.partition("\n\n")
    assert kept == "\n".join(f"line {n}" for n in range(1, 2_001))
    path = tmp_path / "out" / "work-c_1.txt"
    assert note == (
        f"[Cut: these are the first 2000 of 5000 lines, 18.5 of 47.7 KB. The whole output is in {path}.]"
    )
    assert path.read_text() == LINES
    assert message.details == {
        "truncated": True,
        "total_bytes": len(LINES),
        "total_lines": 5_000,
        "full_output_path": str(path),
    }


def test_the_end_is_kept_where_it_matters(tmp_path):
    """Limits are per tool: of this one the last lines, of another anything."""
    budget = OutputBudget(
        tmp_path, per_tool={"shell": OutputLimit(max_lines=2, keep="tail"), "free": None}
    )
    shell = worked(LINES, budget, name="shell").text

    assert shell.startswith("[Cut: these are the last 2 of 5000 lines")
    assert shell.endswith(".]\n\nline 4999\nline 5000\n")
    assert worked(LINES, budget, name="free").text == LINES
    assert "first 2000" in worked(LINES, budget).text


def test_another_limit_can_be_set_for_all(tmp_path):
    """`limit` holds for every tool that has none of its own."""
    assert (
        "first 3 of 5000"
        in worked(LINES, OutputBudget(tmp_path, limit=OutputLimit(max_lines=3))).text
    )


def test_images_and_odd_details_stay(tmp_path):
    """Only text is cut; details that are no object are left alone."""
    image = ImageContent("QUJD", "image/png")
    given = AgentToolResult([TextContent(LINES), image, TextContent("end")], [1, 2])
    message = worked(given, OutputBudget(tmp_path))

    assert message.content[1:] == (image,)
    assert message.details == [1, 2]
    assert (tmp_path / "work-c_1.txt").read_text() == f"{LINES}\nend"


def test_text_that_is_no_utf8_is_kept_readable(tmp_path):
    """Halves of surrogate pairs are replaced in the file, as they are in requests."""
    worked("\ud800" + LINES, OutputBudget(tmp_path))

    assert (tmp_path / "work-c_1.txt").read_text(encoding="utf-8") == "\ufffd" + LINES


def test_equal_ids_have_files_of_their_own(tmp_path):
    """A model may give the same id again, and calls may run side by side."""
    made = parallel("work", lambda _id, args, *_: args["text"] + LINES)
    asked = [call("work", {"text": text}, "same") for text in "abc"]
    run([calls(*asked), calls(*asked), "fine"], made, after_tool_call=OutputBudget(tmp_path))

    files = sorted(tmp_path.iterdir())
    assert len(files) == 6
    assert sorted(path.read_text()[0] for path in files) == list("aabbcc")


def test_names_are_made_safe(tmp_path):
    """Whatever a model calls its call, the file is in the folder."""
    budget = OutputBudget(tmp_path / "out")
    made = tool(function=lambda *_: LINES)
    run([calls(call("work", call_id="../../x" * 60)), "fine"], made, after_tool_call=budget)

    [path] = (tmp_path / "out").iterdir()
    assert re.fullmatch(r"work-______x[_x]*\.txt", path.name)
    assert len(path.name) < 130
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]


def test_the_files_are_the_users_own(tmp_path):
    """Nobody else reads what tools gave."""
    worked(LINES, OutputBudget(tmp_path / "out"))

    [path] = (tmp_path / "out").iterdir()
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_what_cannot_be_kept_is_cut_and_says_why(tmp_path):
    """A folder that can't be made does not cost the result."""
    (tmp_path / "file").write_text("in the way")
    message = worked(LINES, OutputBudget(tmp_path / "file"))

    assert "The rest could not be kept: File exists.]" in message.text
    assert "full_output_path" not in message.details
    assert not message.is_error


# -- where it goes --


def test_a_sessions_outputs_are_beside_its_file(tmp_path):
    """A folder with the session's name holds them."""
    with Session.create(tmp_path / "chat.jsonl") as session:
        worked(LINES, OutputBudget(session))

    assert (tmp_path / "chat.outputs" / "work-c_1.txt").read_text() == LINES


def test_a_temporary_folder_goes_with_its_budget():
    """Without a place, or with a session that has no file, the whole is kept for as long as the budget is."""
    budget = OutputBudget(Session.in_memory())
    path = worked(LINES, budget).details["full_output_path"]
    folder = budget.folder

    assert OutputBudget().folder != folder
    assert (folder / "work-c_1.txt").read_text() == LINES
    assert path == str(folder / "work-c_1.txt")
    del budget
    gc.collect()
    assert not folder.exists()


# -- with other hooks --


def test_a_hook_of_ones_own_goes_first(tmp_path):
    """What it gives is cut, and its other changes stay."""
    budget = OutputBudget(
        tmp_path, after_tool_call=lambda *_: {"content": "own " + LINES, "is_error": True}
    )
    message = worked("x", budget)

    assert message.text.startswith("own line 1\n")
    assert "first 2000 of 5000" in message.text
    assert message.is_error


def test_a_hook_that_changes_little_is_left_alone(tmp_path):
    """What it gives is given on where nothing is to be cut."""
    budget = OutputBudget(tmp_path, after_tool_call=lambda *_: AfterToolCallResult(content="short"))

    assert worked(LINES, budget).text == "short"
    assert worked(LINES, OutputBudget(tmp_path, after_tool_call=lambda *_: None)).text != LINES


# -- reading on --


def test_the_model_can_read_on(tmp_path):
    """It begins where it was cut and goes on to the end, character by character."""
    budget = OutputBudget(tmp_path, limit=OutputLimit(max_bytes=20_000, max_lines=None))
    path = worked("東" + LINES, budget).details["full_output_path"]
    reader, read, offset = budget.reader(), "", 0
    while True:
        part, _, note = reader.execute("r", {"file": path, "offset": offset}).text.rpartition(
            "\n\n"
        )
        read += part
        assert size_bytes(part) <= 20_000
        found = re.search(r"go on with offset (\d+)\.\]", note)
        if found is None:
            break
        offset = int(found[1])

    assert read == "東" + LINES
    assert "to its end.]" in note


def test_line_ends_are_read_as_they_were(tmp_path):
    """The model is shown what the tool gave, so that it can quote it."""
    given = "one\r\ntwo\rthree\n" * 10
    budget = OutputBudget(tmp_path, limit=OutputLimit(max_lines=5))
    path = worked(given, budget).details["full_output_path"]

    read = budget.reader().execute("r", {"file": path, "offset": 0}).text
    assert read.startswith(f"{given}\n\n[Characters 0 to {len(given)} of {len(given)}")


def test_reading_is_a_call_like_any_other(tmp_path):
    """The agent runs it, and what it gives is not cut again."""
    budget = OutputBudget(tmp_path, limit=OutputLimit(max_lines=5))
    path = worked(LINES, budget).details["full_output_path"]
    model = ScriptedModel([calls(call("read_output", {"file": path})), "fine"])
    done = run(model, budget.reader(), after_tool_call=budget)

    assert done.results == [
        (f"{LINES}\n\n[Characters 0 to {len(LINES)} of {len(LINES)}, to its end.]", False)
    ]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"file": "nothing.txt"}, "can't be read"),
        ({"file": "../secret.txt"}, "can't be read"),
        ({"file": ""}, "can't be read"),
        (
            {"file": "a.txt", "offset": 99},
            "the output has 5 characters; offset 99 is behind its end",
        ),
    ],
)
def test_only_what_was_kept_can_be_read(tmp_path, args, words):
    """No other folder is looked into, and what is not there is said."""
    (tmp_path / "secret.txt").write_text("hidden")
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "a.txt").write_text("hello")
    reader = OutputBudget(folder).reader()

    assert reader.execute("r", {"file": "/x/a.txt"}).text.startswith("hello")
    with pytest.raises(ToolError, match=words):
        reader.execute("r", args)


# -- set up --


async def later(*_):
    """Is no plain function."""


@pytest.mark.parametrize(
    "make",
    [
        lambda: OutputLimit(max_bytes=0),
        lambda: OutputLimit(max_lines="5"),
        lambda: OutputBudget(5),
        lambda: OutputBudget(limit=100),
        lambda: OutputBudget(per_tool={"a": 100}),
        lambda: OutputBudget(after_tool_call=later),
        lambda: OutputBudget(after_tool_call="x"),
    ],
)
def test_what_cannot_work_is_refused(make):
    """At once, where it is made."""
    with pytest.raises(ConfigurationError):
        make()


def test_there_are_two_ends():
    """Another word for what is kept is refused."""
    with pytest.raises(ValueError, match="keep"):
        OutputLimit(keep="middle")
