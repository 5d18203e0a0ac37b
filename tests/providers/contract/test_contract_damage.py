"""Whatever bytes come, and however they are cut: no provider raises, and each stream ends exactly once."""

from __future__ import annotations

import itertools
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.providers.contract.apis import (
    APIS,
    BY_NAME,
    CONTEXT,
    EXPECTED,
    TRANSCRIPTS,
    cases,
    transcript,
)
from tests.providers.contract.asking import Pieces, ask, check_stream, plain
from yiemagent.abort import AbortSignal
from yiemagent.errors import YiemAgentError
from yiemagent.llm import StreamOptions
from yiemagent.streaming import ErrorEvent, PartialMessage
from yiemagent.testing import sse

EACH = [pytest.param(api, id=api.name) for api in APIS]
EXAMPLES = 150

pytestmark = pytest.mark.no_cover  # as for every test whose examples are generated

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | st.sampled_from(
        ["", "x", "stop", "\ud800", "0", "tool_use", "text", "function_call", "{", '{"a": 1}']
    ),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["type", "text", "id", "index", "error", "x"]), inner, max_size=3),
    max_leaves=5,
)  # fmt: skip


def check(api, body, cuts=(), kind="text/event-stream"):
    """Ask for a body that is cut at some places; gives the events, checked."""
    edges = sorted({0, len(body), *(min(cut, len(body)) for cut in cuts)})
    pieces = [body[start:end] for start, end in itertools.pairwise(edges)]
    provider = api.make("http://pieces.test", client=Pieces(pieces, kind=kind))
    events = list(provider(CONTEXT, StreamOptions(), AbortSignal()))
    check_stream(events)
    if isinstance(events[-1], ErrorEvent):
        # Anything else would be a bug of ours that was caught on its way out.
        assert isinstance(events[-1].error, YiemAgentError), repr(events[-1].error)
    return events


@pytest.mark.parametrize("api", EACH)
def test_any_cuts_give_the_same_events(api):
    """Cut at any places, a transcript gives the events that it gives in one piece."""
    names = [name for name in EXPECTED if name not in api.lacks]
    expected = {name: plain(check(api, transcript(api, name))) for name in names}

    @settings(max_examples=EXAMPLES)
    @given(name=st.sampled_from(names), cuts=st.lists(st.integers(0, 5000), max_size=30))
    def cut_anywhere(name, cuts):
        assert plain(check(api, transcript(api, name), cuts)) == expected[name]

    cut_anywhere()


@pytest.mark.parametrize("api", EACH)
@pytest.mark.parametrize("kind", ["text/event-stream", "application/json"])
def test_damaged_bytes_end_the_stream_once(api, kind):
    """Bytes that are lost, doubled, changed or put in give one Done or one Error, whatever the content type says."""
    names = [name for name in EXPECTED if name not in api.lacks]
    place = st.integers(0, 5000)
    damage = st.tuples(place, st.integers(0, 40), st.binary(max_size=4) | st.sampled_from(
        [b"\n\n", b"\r", b"data:", b"data: [DONE]\n\n", b"event: error\n", b"{", b'"', b"null", b"\xf0\x9f"]
    ))  # fmt: skip

    @settings(max_examples=EXAMPLES)
    @given(
        name=st.sampled_from(names),
        damages=st.lists(damage, min_size=1, max_size=4),
        cuts=st.lists(place, max_size=5),
    )
    def damage_anywhere(name, damages, cuts):
        body = transcript(api, name)
        for at, lost, put_in in damages:
            body = body[:at] + put_in + body[at + lost :]
        check(api, body, cuts, kind)

    damage_anywhere()


@pytest.mark.parametrize("api", EACH)
def test_strange_values_end_the_stream_once(api):
    """JSON of any shape where another was expected gives one Done or one Error."""
    names = [name for name in EXPECTED if name not in api.lacks]

    @settings(max_examples=2 * EXAMPLES)
    @given(
        name=st.sampled_from(names),
        places=st.lists(st.tuples(st.integers(0, 400), json_values), min_size=1, max_size=3),
    )
    def change_anywhere(name, places):
        events = [
            (event, json.loads(data))
            for event, data in re.findall(
                r"(?:event: (.*?)\r?\n)?data: (\{.*\})\r?\n", transcript(api, name).decode()
            )
        ]
        for place, value in places:
            slots = [slot for _, data in events for slot in _slots(data)]
            holder, key = slots[place % len(slots)]
            holder[key] = value
        body = "".join(
            (f"event: {event}\n" if event else "") + f"data: {json.dumps(data)}\n\n"
            for event, data in events
        )
        check(api, body.encode())

    change_anywhere()


@pytest.mark.parametrize("api", EACH)
def test_strange_values_in_a_whole_answer_end_it_once(api):
    """JSON of any shape inside an answer that comes whole gives one Done or one Error."""
    body = (TRANSCRIPTS / api.name / "whole.json").read_text(encoding="utf-8")

    @settings(max_examples=2 * EXAMPLES)
    @given(places=st.lists(st.tuples(st.integers(0, 100), json_values), min_size=1, max_size=3))
    def change_anywhere(places):
        whole = json.loads(body)
        for place, value in places:
            slots = list(_slots(whole))
            holder, key = slots[place % len(slots)]
            holder[key] = value
        check(api, json.dumps(whole).encode(), kind="application/json")

    change_anywhere()


def _slots(value):
    """Each place in a JSON value that holds another."""
    items = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
    for key, held in items:
        yield value, key
        if isinstance(held, (dict, list)):
            yield from _slots(held)


@pytest.mark.parametrize("api", EACH)
@pytest.mark.parametrize("body", [
    b"",
    b"\xff\xfe",
    b"null",
    b"[]",
    b'"x"',
    b"7",
    b"{}",
    b"data: null\n\n",
    b"data: []\n\ndata: {}\n\n",
    b"data: [DONE]\n\n",
    b": only a comment\n\n",
    b"<html><body>Sign in</body></html>",
    b'{"error": null}',
    b'{"error": "no"}',
    b'{"error": {"message": ["no"]}}',
    b'data: {"error": {"message": null, "code": "x"}}\n\n',
    b"data: " + b"[" * 100_000 + b"\n\n",
    b"[" * 100_000,
    b"event: error\ndata: no\n\n",
])  # fmt: skip
@pytest.mark.parametrize("kind", ["text/event-stream", "application/json", "text/html"])
def test_what_is_no_answer_is_an_error(api, body, kind):
    """An empty body, a page, a bare value or a nest of brackets is one Error that says something."""
    [last] = check(api, body, kind=kind)

    assert isinstance(last, ErrorEvent)
    assert last.message.error_message


BROKE_A_READER = {
    "openai-chat": [{"choices": [{"delta": {"content": [{"type": []}]}}]}],
    "anthropic-messages": [
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"input_tokens": True}},
        {"type": "message_stop"},
    ],
    "gemini": [
        {"candidates": [{"finishReason": "STOP"}], "usageMetadata": {"promptTokenCount": True}},
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", BROKE_A_READER)
def test_shapes_that_once_broke_a_reader(name):
    """A kind that is a list, and a count that is a truth value, are left out like any damage."""
    check(BY_NAME[name], sse(*BROKE_A_READER[name], done=False))


@pytest.mark.parametrize(
    ("api", "name"), [pytest.param(a, n, id=f"{a.name}-{n}") for a, n in cases()]
)
def test_an_answer_that_is_left_has_its_parts(api, name):
    """The partial message after each event holds what came up to it, and never raises."""
    provider = api.make("http://pieces.test", client=Pieces([transcript(api, name)]))
    partial = PartialMessage.first()
    sizes = []
    for event in ask(provider):
        partial = partial.add(event)
        sizes.append(len(partial.build().text))

    assert sizes == sorted(sizes)
