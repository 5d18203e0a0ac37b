"""Messages out of bytes and bytes out of messages, whatever the bytes are."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yiemagent.mcp import jsonrpc
from yiemagent.mcp.jsonrpc import (
    ErrorResponse,
    LineReader,
    Malformed,
    Noise,
    Notification,
    Request,
    Response,
    dump,
    id_key,
    parse,
)


def only(data, **options):
    """The one message that the bytes hold."""
    (message,) = parse(data if isinstance(data, bytes) else json.dumps(data).encode(), **options)
    return message


@pytest.mark.parametrize(
    "wire, message",
    [
        ({"jsonrpc": "2.0", "id": 1, "method": "m", "params": {"a": 1}}, Request(1, "m", {"a": 1})),
        ({"jsonrpc": "2.0", "id": "x", "method": "m"}, Request("x", "m")),
        ({"jsonrpc": "2.0", "id": 0, "method": "m", "params": None}, Request(0, "m")),
        ({"jsonrpc": "2.0", "method": "m"}, Notification("m")),
        ({"jsonrpc": "2.0", "id": 7, "result": {"a": 1}}, Response(7, {"a": 1})),
        ({"jsonrpc": "2.0", "id": 7.0, "result": {}}, Response(7, {})),
        ({"jsonrpc": "2.0", "id": 7, "result": {}, "error": None}, Response(7, {})),
        ({"id": 7, "result": {}}, Response(7, {})),
        (
            {"jsonrpc": "2.0", "id": 7, "error": {"code": -1, "message": "no", "data": [1]}},
            ErrorResponse(7, -1, "no", [1]),
        ),
        (
            {"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "what"}},
            ErrorResponse(None, -32700, "what"),
        ),
        ({"id": 1, "error": {"code": "E"}}, ErrorResponse(1, -32603, "no message")),
        ({"id": 1, "error": "broken"}, ErrorResponse(1, -32603, "broken")),
        ({"id": 1, "result": None, "error": {"code": 5}}, ErrorResponse(1, 5, "no message")),
    ],
)
def test_every_kind_of_message_is_read(wire, message):
    """Requests, notifications, answers and errors are read, also in the slightly wrong forms that servers send."""
    assert only(wire) == message


@pytest.mark.parametrize(
    "wire, number, is_answer",
    [
        ({"jsonrpc": "2.0", "id": 4}, 4, True),
        ({"jsonrpc": "2.0", "id": 4, "result": {}, "error": {"code": 1}}, 4, True),
        ({"jsonrpc": "2.0", "id": 4, "error": None}, 4, True),
        ({"jsonrpc": "2.0", "result": {}}, None, None),
        ({"jsonrpc": "2.0", "id": None, "result": {}}, None, True),
        ({"jsonrpc": "2.0", "id": None, "method": "m"}, None, False),
        ({"jsonrpc": "2.0", "id": True, "method": "m"}, None, False),
        ({"jsonrpc": "2.0", "id": 1.5, "method": "m"}, None, False),
        ({"jsonrpc": "2.0", "id": 4, "method": 5}, 4, False),
        ({"jsonrpc": "2.0", "id": 4, "method": "m", "params": [1]}, 4, False),
    ],
)
def test_a_broken_message_keeps_its_id(wire, number, is_answer):
    """What is meant as a message and is none tells the reason, and the id where there is one."""
    message = only(wire)

    assert isinstance(message, Malformed)
    assert (message.id, message.is_answer) == (number, is_answer)
    assert message.code == jsonrpc.INVALID_REQUEST
    assert message.reason


@pytest.mark.parametrize(
    "data",
    [
        b"Server listening on port 3",
        b"[1,2]",
        b"null",
        b"{",
        b"{ not json }",
        b'{"level":"info","msg":"started"}',
        b'"text"',
        b"[]",
        b"\xff\xfe\xfd",
    ],
)
def test_what_is_no_message_is_noise(data):
    """Banners, log lines and JSON values that no message is made of are noise."""
    assert isinstance(only(data), Noise)


@pytest.mark.parametrize("data", [b"", b"  \r", b"\n"])
def test_a_blank_line_is_nothing(data):
    """Blank lines hold no message."""
    assert parse(data) == []


def test_text_is_read_like_bytes():
    """Events of a stream are text already."""
    assert parse('{"id":1,"result":{"a":"é"}}') == [Response(1, {"a": "é"})]


def test_a_batch_is_several_messages():
    """An array of messages, which one version allows, gives each."""
    assert parse(b'[{"id":1,"result":{}},{"jsonrpc":"2.0","method":"m"}]') == [
        Response(1, {}),
        Notification("m"),
    ]


def test_a_strict_reader_wants_the_version():
    """Where it is asked for, a message without the version of JSON-RPC is malformed, and keeps its id."""
    assert only({"id": 3, "method": "m"}) == Request(3, "m")
    assert only({"id": 3, "method": "m"}, strict=True).id == 3
    assert only({"jsonrpc": "2.0", "id": 3, "method": "m"}, strict=True) == Request(3, "m")


@pytest.mark.parametrize(
    "data, words",
    [
        (b'{"jsonrpc":"2.0","id":5,"result":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested"),
        (b'{"result":{"n":' + b"9" * 5000 + b'},"jsonrpc":"2.0","id":5}', "no JSON"),
        (b'{"id":5,"result":{"a":1', "no JSON"),
        (b'{"result":{"a":1},,"id":5}', "no JSON"),
    ],
)
def test_a_message_that_cannot_be_parsed_keeps_its_id(data, words):
    """Too deep, too large a number, cut off: the id is seen where encoders write it, first or last."""
    message = only(data)

    assert isinstance(message, Malformed)
    assert (message.id, message.is_answer, message.code) == (5, True, jsonrpc.PARSE_ERROR)
    assert words in message.reason


def test_a_message_over_several_lines_is_told_apart_from_noise():
    """Pretty-printed JSON is meant as a message, and no line of it is one."""
    lines = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {}}, indent=2).encode().split(b"\n")
    kinds = [type(only(line)) for line in lines]

    assert kinds.count(Malformed) == 1
    assert "spread over several lines" in only(lines[1]).reason


def test_half_a_line_at_the_end_is_nothing():
    """What the server did not finish to say counts only where it is whole."""
    reader = LineReader()

    assert reader.feed(b'{"id":1,"result":{"a') == []
    assert reader.end() == []


def test_an_id_inside_an_answer_is_not_taken_for_its_own():
    """Only an id at the outer level counts: another one would fail a call that this is no answer to."""
    message = only(b'{"result":{"id":5,"jsonrpc":1,"x":}}')

    assert isinstance(message, Malformed)
    assert message.id is None


def test_broken_text_becomes_replacement_characters():
    """Bytes that are no UTF-8 cost the characters that they stand for and nothing else."""
    assert only(b'{"id":1,"result":{"a":"\xff!"}}') == Response(1, {"a": "\ufffd!"})


@pytest.mark.parametrize(
    "given_id, key",
    [
        (7, 7),
        ("7", 7),
        ("a7", "a7"),
        ("", ""),
        (None, None),
        ("\u0667", "\u0667"),
        ("9" * 40, "9" * 40),
    ],
)
def test_an_id_in_text_is_the_number(given_id, key):
    """An answer to "7" is an answer to 7, and every other text stays what it is."""
    assert id_key(given_id) == key


# --- lines -----------------------------------------------------------------------------------------------------------

LINES = b'\xef\xbb\xbf{"id":1,"result":{"a":"\xc3\xa9"}}\r\nnoise\n\n{"method":"m"}\n{"id":2,"result":{}}'


@given(st.lists(st.integers(0, len(LINES)), max_size=12))
def test_lines_are_the_same_however_the_bytes_are_cut(cuts):
    """The bytes may be cut anywhere, inside a character or a byte order mark."""
    reader, found, start = LineReader(), [], 0
    for cut in [*sorted(cuts), len(LINES)]:
        found += reader.feed(LINES[start:cut])
        start = cut
    found += reader.end()

    assert found == [
        Response(1, {"a": "é"}),
        Noise("noise"),
        Notification("m"),
        Response(2, {}),
    ]
    assert reader.noise_count == 1


@pytest.mark.parametrize(
    "line, number",
    [
        (b'{"jsonrpc":"2.0","id":8,"result":{"a":"%s"}}', 8),
        (b'{"result":{"a":"%s"},"jsonrpc":"2.0","id":8}', 8),
        (b'{"result":{"a":"%s"},"id":8,"x":0}', None),
        (b"%s", None),
    ],
)
@pytest.mark.parametrize("piece", [1, 1000, 1_000_000])
def test_a_line_above_the_limit_fails_alone(line, number, piece):
    """A line that is too long is one malformed message, with its id, and the next line is read as ever."""
    data = line % (b"x" * 20_000) + b'\n{"id":9,"result":{}}\n'
    reader, found = LineReader(max_line_bytes=10_000), []
    for start in range(0, len(data), piece):
        found += reader.feed(data[start : start + piece])

    long, good = found
    assert isinstance(long, Malformed)
    assert long.id == number
    assert "longer than 10000 bytes" in long.reason
    assert good == Response(9, {})


def test_a_long_line_is_read_in_one_pass():
    """A line of 20 MB in small pieces is put together once."""
    reader = LineReader()
    body = b"x" * 20_000_000
    data = b'{"id":1,"result":{"a":"' + body + b'"}}\n'
    found = []
    for start in range(0, len(data), 65_536):
        found += reader.feed(data[start : start + 65_536])

    assert found[0].result["a"].encode() == body


@given(st.binary(max_size=300))
def test_no_bytes_raise(data):
    """Whatever comes is read as something."""
    reader = LineReader(max_line_bytes=100)

    assert isinstance(reader.feed(data) + reader.end(), list)


# --- out -------------------------------------------------------------------------------------------------------------

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), JSON_VALUES, max_size=4))
def test_a_message_comes_back_as_it_went_out(params):
    """What is dumped is one line of bytes, and reads as the same."""
    data = dump(jsonrpc.request(1, "m", params))

    assert b"\n" not in data
    assert b"\r" not in data
    assert only(data) == Request(1, "m", params)


def test_text_goes_out_in_ascii():
    """Letters of any script are escaped, so that a server which reads another encoding gets them."""
    assert dump({"a": "é中"}) == b'{"a":"\\u00e9\\u4e2d"}'


def test_half_characters_are_mended():
    """Half a surrogate pair becomes U+FFFD; whole pairs, line separators and a written-out escape stay."""
    sent = {"a": "x\ud83dy", "b": "😀\u2028", "c": "\\ud83d"}

    assert json.loads(dump(sent)) == {"a": "x\ufffdy", "b": "😀\u2028", "c": "\\ud83d"}
    assert "\u2028" not in dump(sent).decode()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object()])
def test_what_json_has_not_is_refused(value):
    """NaN and objects never go out."""
    with pytest.raises((ValueError, TypeError)):
        dump({"a": value})


def test_messages_go_out_as_the_wire_wants_them():
    """Requests, notifications, answers and errors have the fields of JSON-RPC 2.0 and no empty ones."""
    assert jsonrpc.request(1, "m") == {"jsonrpc": "2.0", "id": 1, "method": "m"}
    assert jsonrpc.notification("m", {}) == {"jsonrpc": "2.0", "method": "m", "params": {}}
    assert jsonrpc.notification("m") == {"jsonrpc": "2.0", "method": "m"}
    assert jsonrpc.response("a", {}) == {"jsonrpc": "2.0", "id": "a", "result": {}}
    assert jsonrpc.error_response(None, -1, "no") == {
        "jsonrpc": "2.0",
        "id": None,
        "error": {"code": -1, "message": "no"},
    }
    assert jsonrpc.error_response(2, -1, "no", {"x": 1})["error"]["data"] == {"x": 1}
