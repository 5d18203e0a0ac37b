"""The product's scripted server, under the names that the suite has for its parts."""

from __future__ import annotations

from typing import Any

from yiemagent.testing import HttpAnswer, HttpRequest, json_answer, sse, sse_answer
from yiemagent.testing import ScriptedServer as _ScriptedServer

__all__ = ["Answer", "Request", "ScriptedServer", "json_answer", "sse", "sse_answer"]

Answer = HttpAnswer
Request = HttpRequest


class ScriptedServer(_ScriptedServer):
    """A scripted server whose certificate and key are one pair, and that may greet nobody."""

    def __init__(
        self, *answers: Any, tls: tuple[str, str] | None = None, greet: bool = True
    ) -> None:
        certfile, keyfile = tls or (None, None)
        greeting: Any = "serve" if greet else "stall"
        super().__init__(*answers, certfile=certfile, keyfile=keyfile, on_connect=greeting)
