"""JSON payloads that refuse to change."""

from __future__ import annotations

import copy
import json
import pickle

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from yiemagent.payload import FrozenDict, FrozenList, freeze_json, thaw_json

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.__setitem__("a", 1),
        lambda d: d.__delitem__("a"),
        lambda d: d.pop("a"),
        lambda d: d.popitem(),
        lambda d: d.clear(),
        lambda d: d.update(a=1),
        lambda d: d.setdefault("b", 1),
        lambda d: d.__ior__({"a": 2}),
        lambda d: d["l"].append(1),
        lambda d: d["l"].extend([1]),
        lambda d: d["l"].insert(0, 1),
        lambda d: d["l"].remove(1),
        lambda d: d["l"].pop(),
        lambda d: d["l"].clear(),
        lambda d: d["l"].sort(),
        lambda d: d["l"].reverse(),
        lambda d: d["l"].__iadd__([1]),
        lambda d: d["l"].__imul__(2),
        lambda d: d["l"].__setitem__(slice(None), []),
        lambda d: d["l"].__delitem__(0),
        lambda d: d["l"][1].update(x=1),
    ],
)
def test_no_method_changes_a_payload(change):
    """Every changing method raises and says what to do instead."""
    payload = freeze_json({"a": 1, "l": [1, {}]})
    with pytest.raises(TypeError, match=r"copy\.deepcopy it first"):
        change(payload)

    assert payload == {"a": 1, "l": [1, {}]}


@given(JSON)
def test_a_frozen_payload_reads_like_the_plain_one(value):
    """It is equal, gives the same JSON, freezes to itself and thaws to plain dicts and lists."""
    frozen = freeze_json(value)

    assert frozen == value
    assert json.dumps(frozen) == json.dumps(value)
    assert freeze_json(frozen) is frozen
    assert isinstance(hash(frozen), int)
    for plain in (thaw_json(frozen), copy.deepcopy(frozen), pickle.loads(pickle.dumps(frozen))):
        assert plain == value
        assert type(plain) is type(value)
        assert "Frozen" not in repr([type(item) for item in parts(plain)])


def parts(value):
    yield value
    for item in (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        yield from parts(item)


def test_equal_payloads_have_one_hash():
    """A payload may be a key."""
    one, other = (
        freeze_json({"a": [1, {"b": None}], "c": 1.0}),
        freeze_json({"c": 1, "a": [1, {"b": None}]}),
    )

    assert one == other
    assert hash(one) == hash(other)
    assert isinstance(hash(freeze_json({"a": {1, 2}})), int)


def test_jsonschema_takes_frozen_payloads():
    """As schema and as instance."""
    schema = freeze_json(
        {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "integer"}}}}
    )

    assert jsonschema.Draft202012Validator(schema).is_valid(freeze_json({"a": [1]}))
    assert not jsonschema.Draft202012Validator(schema).is_valid(freeze_json({"a": ["x"]}))


def test_other_values_stay_the_objects_they_are():
    """Only dicts, lists and tuples are made anew."""
    marker = object()
    frozen = freeze_json({"x": marker, "t": (1, [2])})

    assert frozen["x"] is marker
    assert isinstance(frozen, FrozenDict)
    assert isinstance(frozen["t"], FrozenList)
    assert thaw_json(frozen)["x"] is marker
