"""Fakes and checks for tests of agents, part of the product: the library's own tests use nothing else.

A scripted model, a recording sink, a clock and the grammar of events; answers recorded once and replayed; a scripted
HTTP server with faults; a guard that keeps tests off the network. Each loads when it is asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from yiemagent.testing.grammar import check_event_order
    from yiemagent.testing.http_script import HttpAnswer, HttpRequest, json_answer, sse, sse_answer
    from yiemagent.testing.model import ScriptedModel, call, calls, failure
    from yiemagent.testing.network import NetworkForbidden, forbid_network
    from yiemagent.testing.recording import record, replay
    from yiemagent.testing.server import ScriptedServer
    from yiemagent.testing.watching import FakeClock, RecordingSink

__all__ = [
    "FakeClock",
    "HttpAnswer",
    "HttpRequest",
    "NetworkForbidden",
    "RecordingSink",
    "ScriptedModel",
    "ScriptedServer",
    "call",
    "calls",
    "check_event_order",
    "failure",
    "forbid_network",
    "json_answer",
    "record",
    "replay",
    "sse",
    "sse_answer",
]

_ROOMS = {
    "FakeClock": "watching",
    "HttpAnswer": "http_script",
    "HttpRequest": "http_script",
    "NetworkForbidden": "network",
    "RecordingSink": "watching",
    "ScriptedModel": "model",
    "ScriptedServer": "server",
    "call": "model",
    "calls": "model",
    "check_event_order": "grammar",
    "failure": "model",
    "forbid_network": "network",
    "json_answer": "http_script",
    "record": "recording",
    "replay": "recording",
    "sse": "http_script",
    "sse_answer": "http_script",
}


def __getattr__(name: str) -> Any:
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_ROOMS[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_ROOMS})
