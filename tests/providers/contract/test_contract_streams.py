"""Every provider, every transcript of its API: however the bytes come, the same events, and what they amount to."""

from __future__ import annotations

import re

import pytest

from tests.providers.contract.apis import APIS, BY_NAME, EXPECTED, TRANSCRIPTS, cases, transcript
from tests.providers.contract.asking import Pieces, ask, plain
from yiemagent.errors import LlmConnectionError, LlmError
from yiemagent.messages import LlmUsage, ThinkingContent
from yiemagent.testing import ScriptedServer, sse_answer

ALL = [pytest.param(api, name, id=f"{api.name}-{name}") for api, name in cases()]
EACH = [pytest.param(api, id=api.name) for api in APIS]


def cut(body, size):
    """A body in pieces of one size."""
    return [body[start : start + size] for start in range(0, len(body), size)]


def whole(api, name):
    """The events of a transcript that comes in one piece."""
    provider = api.make("http://pieces.test", client=Pieces([transcript(api, name)]))
    return ask(provider)


def test_every_transcript_is_of_the_contract():
    """Each file belongs to an API and a case that says what it amounts to, and each case has its file."""
    there = {(path.parent.name, path.stem) for path in TRANSCRIPTS.rglob("*.sse")}

    assert there == {(api.name, name) for api, name in cases()}
    assert sorted(BY_NAME) == sorted({name for name, _ in there})


@pytest.mark.parametrize(("api", "name"), ALL)
def test_what_a_transcript_amounts_to(api, name):
    """Text, thinking, calls, stop reason, raw reason, usage and failure are what the transcript says."""
    expected = EXPECTED[name]
    last = whole(api, name)[-1]
    message = last.message
    thinking = [block.thinking for block in message.content if isinstance(block, ThinkingContent)]

    assert message.stop_reason == expected.stop_reason, message.error_message
    assert message.text == ("" if (api.name, name) == ("gemini", "refusal") else expected.text)
    assert "".join(thinking) == expected.thinking
    assert [(call.name, call.arguments) for call in message.tool_calls] == list(expected.calls)
    assert (message.api, message.model) == (api.name, "the-model")
    if name in api.raw:
        assert message.raw_stop_reason == api.raw[name]
    if expected.has_usage and (api.name, name) != ("gemini", "refusal"):
        assert message.usage == LlmUsage(*api.usage)
    if expected.words is not None:
        assert re.search(expected.words, message.error_message)


@pytest.mark.parametrize(("api", "name"), ALL)
@pytest.mark.parametrize("size", [1, 7])
def test_pieces_of_any_size_give_the_same_events(api, name, size):
    """Byte by byte and in pieces of seven bytes, cut inside characters and line ends, nothing changes."""
    client = Pieces(cut(transcript(api, name), size))

    assert plain(ask(api.make("http://pieces.test", client=client))) == plain(whole(api, name))


@pytest.mark.parametrize("api", EACH)
def test_line_ends_and_noise_change_nothing(api):
    """Other line ends, comments, keep-alives, a byte order mark and events of a kind to come give the same events."""
    events = plain(whole(api, "text"))

    assert plain(whole(api, "line_ends")) == events
    assert plain(whole(api, "noise")) == events


@pytest.mark.parametrize(("api", "name"), ALL)
def test_over_http_the_events_are_the_same(api, name):
    """Whole, byte by byte and by seven bytes, in chunks or up to the end of the connection: the same events."""
    body = transcript(api, name)
    answers = [
        sse_answer(body, chunked=True, then="keep"),
        sse_answer(body, chunked=True, piece=7, then="keep"),
        sse_answer(body, chunked=True, piece=1, then="keep"),
        sse_answer(body),
        sse_answer(body, piece=7),
        sse_answer(body, piece=1),
    ]
    with ScriptedServer(*answers) as server:
        provider = api.make(server.url)
        came = [plain(ask(provider)) for _ in answers]
        provider.close()

    assert came == [plain(whole(api, name))] * len(answers)


@pytest.mark.parametrize("api", EACH)
@pytest.mark.parametrize("name", ["cut", "cut_in_an_event"])
def test_an_end_that_nobody_signalled_is_an_error(api, name):
    """A stream that only ends is an answer that broke off: what came is kept, and it is not taken for the whole."""
    error = whole(api, name)[-1].error

    assert isinstance(error, LlmConnectionError)
    assert error.retryable


@pytest.mark.parametrize("api", EACH)
@pytest.mark.parametrize("chunked", [True, False])
@pytest.mark.parametrize("then", ["close", "reset"])
def test_a_connection_that_breaks_is_an_error(api, chunked, then):
    """A cut body and a reset are answers that broke off, with what came in them."""
    body = transcript(api, "text")
    answer = sse_answer([transcript(api, "cut"), 0.05, body], cut=len(transcript(api, "cut")) + 9,
                        chunked=chunked, then=then)  # fmt: skip
    with ScriptedServer(answer) as server:
        provider = api.make(server.url)
        last = ask(provider)[-1]
        provider.close()

    assert last.message.text == "Half a"
    assert isinstance(last.error, LlmError)


@pytest.mark.parametrize("api", EACH)
def test_signatures_of_thinking_are_kept(api):
    """What must be sent back with an answer (its signature, or the field that it came in) is in the message."""
    content = whole(api, "thinking")[-1].message.content

    assert [block.signature for block in content if block.signature]
