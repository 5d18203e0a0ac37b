"""JSON payloads inside messages, events and contexts: dicts and lists that read like any other and refuse to
change.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, cast

__all__ = ["FrozenDict", "FrozenList", "compact_json", "freeze_json", "text_of", "thaw_json"]


def _refuse(self: object, *_args: object, **_kwargs: object) -> Any:
    raise TypeError(
        f"this {type(self).__name__} is part of a message and can't change; copy.deepcopy it first"
    )


class FrozenDict(dict[str, Any]):
    """A dict that refuses to change; `copy.deepcopy` and pickling give a plain dict."""

    __slots__ = ()

    __setitem__ = __delitem__ = clear = pop = popitem = setdefault = update = _refuse
    __ior__ = _refuse

    def __hash__(self) -> int:  # type: ignore[override]  # a frozen mapping may be a key
        return hash(frozenset((key, _hashable(value)) for key, value in self.items()))

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        return cast("dict[str, Any]", thaw_json(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (cast("dict[str, Any]", thaw_json(self)),)


class FrozenList(list[Any]):
    """A list that refuses to change; `copy.deepcopy` and pickling give a plain list."""

    __slots__ = ()

    __setitem__ = __delitem__ = append = clear = extend = insert = pop = remove = _refuse
    reverse = sort = __iadd__ = __imul__ = _refuse

    def __hash__(self) -> int:  # type: ignore[override]  # a frozen sequence may be a key
        return hash(tuple(_hashable(value) for value in self))

    def __deepcopy__(self, memo: dict[int, Any]) -> list[Any]:
        return cast("list[Any]", thaw_json(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (cast("list[Any]", thaw_json(self)),)


def _hashable(value: Any) -> Any:
    # 1, 1.0 and True are equal and hash alike, so equal payloads still hash alike; any other object counts by
    # identity.
    try:
        return hash(value)
    except TypeError:
        return id(value)


# Told by their class, before anything that costs more: most of a payload is of these.
_SCALARS = frozenset({str, int, float, bool, type(None)})
_UNCHANGED = _SCALARS | {FrozenDict, FrozenList}


def freeze_json(value: Any) -> Any:
    """Give `value` with every dict and list in it read-only; values of other kinds stay the objects they are.

    A payload that is read-only already is given back as it is.
    """
    if value.__class__ in _UNCHANGED:
        return value
    if isinstance(value, (dict, Mapping)):
        return FrozenDict(
            {
                key: item if item.__class__ in _UNCHANGED else freeze_json(item)
                for key, item in value.items()
            }
        )
    if isinstance(value, (list, tuple)):
        return FrozenList([freeze_json(item) for item in value])
    return value


def thaw_json(value: Any) -> Any:
    """Give a plain private copy of a payload: dicts and lists anew, other values the objects they are."""
    if value.__class__ in _SCALARS:
        return value
    if isinstance(value, dict):
        return {
            key: item if item.__class__ in _SCALARS else thaw_json(item)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [thaw_json(item) for item in value]
    return value


def text_of(value: Any) -> str:
    """Give the text of what is no JSON value; where that fails, what it is."""
    try:
        return str(value)
    except Exception:  # whoever made it: it may need a connection that is closed by now
        return f"<{type(value).__name__}>"


def _compact_writer() -> Callable[[Any], str]:
    encoder: Any = json.encoder
    if encoder.c_make_encoder is None:  # pragma: no cover  # a Python without its C modules
        return json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
    texts = encoder.encode_basestring
    parts = encoder.c_make_encoder(None, None, texts, None, ":", ",", False, False, False)
    return lambda data: "".join(parts(data, 0))


compact_json = _compact_writer()
"""The writer of compact, strict JSON: the one behind `json.dumps`, made once instead of for each call."""
