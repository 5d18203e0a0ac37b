"""Bodies as bytes."""

import json
import threading

from yiemagent.payload import FrozenDict
from yiemagent.providers.body_encoder import BodyEncoder

TOOL = FrozenDict(type="function", function=FrozenDict(name="look", description="x" * 200))


def body(*messages):
    return {
        "model": "m",
        "messages": [FrozenDict(content=text) for text in messages],
        "tools": [TOOL],
    }


def test_encoding_is_json():
    """The bytes are the body's JSON, on the second time as well, and plain ASCII."""
    encoder = BodyEncoder()
    given = body("hi") | {"x": ["\u00fc", None, 1.5], "empty": {}, "none": []}
    given["messages"].append({"role": "user", "content": "\U0001f600"})
    first = encoder.encode(given)

    assert json.loads(first) == given
    assert list(json.loads(first)) == list(given)
    assert encoder.encode(given) == first
    assert first.isascii()
    assert json.loads(encoder.encode({})) == {}


def test_what_is_frozen_is_encoded_once():
    """Frozen messages and tools of an earlier body aren't encoded again, whatever else a body holds."""
    encoder = BodyEncoder()
    given = body("hi")
    encoder.encode(given)
    size = encoder._size
    encoder.encode({**given, "messages": [*given["messages"]], "temperature": 1})

    assert size > 200
    assert encoder._size == size


def test_what_may_change_is_encoded_each_time():
    """A plain dict that was changed between two requests is sent as it is now."""
    encoder = BodyEncoder()
    message = {"role": "user", "content": "first"}
    encoder.encode({"messages": [message]})
    message["content"] = "second"

    assert json.loads(encoder.encode({"messages": [message]}))["messages"] == [message]
    assert encoder._size == 0


def test_what_is_kept_is_bounded():
    """What is kept is let go of above a limit, and large messages aren't kept at all."""
    encoder = BodyEncoder()
    encoder.encode({"messages": [FrozenDict(content="x" * 1_000_000)]})
    assert encoder._size == 0

    messages = [FrozenDict(content="x" * 250_000) for _ in range(80)]
    for message in messages:
        encoder.encode({"messages": [message]})

    assert encoder._size < 17_000_000
    assert json.loads(encoder.encode({"messages": messages}))["messages"] == messages


def test_encoding_from_threads():
    """Threads that share an encoder each get their own body."""
    encoder = BodyEncoder()
    shared = [FrozenDict(content=str(number)) for number in range(50)]
    wrong = []

    def work(number):
        given = {"messages": [*shared[number:], FrozenDict(content=f"mine {number}")]}
        wrong.extend([] if json.loads(encoder.encode(given)) == given else [number])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not wrong
