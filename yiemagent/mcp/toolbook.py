"""What a client knows of a server: its tools' hints and schemas, and answers that stay fresh for a while.

Hints are the server's own word and grant nothing: they only tell what may run side by side and what may be sent twice
where the user allows it. Facts about freshness from the specification 2026-07-28, "Caching".
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from yiemagent.mcp.client_headers import header_fault
from yiemagent.payload import thaw_json

__all__ = ["FreshAnswers", "ToolBook"]

logger = logging.getLogger("yiemagent.mcp.toolbook")

_KINDS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resources",
    "resources/read": "read",
}
_MAX_ANSWERS = 256


class ToolBook:
    """The definitions of a server's tools, as it listed them last; by the server's names."""

    def __init__(self) -> None:
        self._tools: dict[
            str, Mapping[str, Any]
        ] = {}  # single steps of a dict are atomic, so no lock

    def note(self, result: dict[str, Any], *, stateless: bool) -> dict[str, Any]:
        """Keep what one page of a list says.

        Returns:
            The page without the tools that no client may call: those whose wishes for headers are wrong.
        """
        listed = result.get("tools")
        if not isinstance(listed, list):
            return result
        kept = [tool for tool in listed if not (stateless and _is_faulty(tool))]
        for tool in kept:
            if isinstance(tool, Mapping) and isinstance(tool.get("name"), str):
                self._tools[tool["name"]] = tool
        return result if len(kept) == len(listed) else {**result, "tools": kept}

    def schema(self, name: str) -> Mapping[str, Any] | None:
        """The input schema of a tool, or None where it is not known."""
        schema = self._tools.get(name, {}).get("inputSchema")
        return schema if isinstance(schema, Mapping) else None

    def hints(self, name: str, *hints: str) -> bool:
        """Whether the tool is known and claims any of these hints."""
        given = self._tools.get(name, {}).get("annotations")
        return isinstance(given, Mapping) and any(given.get(hint) is True for hint in hints)


def _is_faulty(tool: Any) -> bool:
    fault = header_fault(tool.get("inputSchema")) if isinstance(tool, Mapping) else None
    if fault is not None:
        logger.warning("the tool %r is left out: %s", tool.get("name"), fault)
    return fault is not None


class FreshAnswers:
    """Answers that the server said stay true for a while (`ttlMs`); one client's own, whatever their scope.

    Args:
        clock: gives seconds that never go back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # Guards the fields below; held for nothing that waits.
        self._lock = threading.Lock()
        self._answers: dict[tuple[str, str], tuple[float, dict[str, Any]]] = {}
        self._generation = 0

    def generation(self) -> int:
        """A number that changes when answers on their way may be stale already."""
        return self._generation

    def get(self, method: str, params: Mapping[str, Any] | None) -> dict[str, Any] | None:
        """Give the answer to a request that is still fresh, a copy of the caller's own, or None."""
        if not self._answers or method not in _KINDS:
            return None
        with self._lock:
            fresh_until, answer = self._answers.get(_key(method, params), (0.0, None))
        if answer is None or self._clock() >= fresh_until:
            return None
        copied: dict[str, Any] = thaw_json(answer)
        return copied

    def put(
        self, method: str, params: Mapping[str, Any] | None, answer: dict[str, Any], generation: int
    ) -> None:
        """Keep an answer for as long as it says that it stays fresh.

        Args:
            method: what was asked.
            params: what with.
            answer: the result.
            generation: what `generation` gave before it was asked: what changed since may not be in it.
        """
        ttl_ms = answer.get("ttlMs")
        if method not in _KINDS or isinstance(ttl_ms, bool) or not isinstance(ttl_ms, (int, float)):
            return
        if not ttl_ms > 0:
            return
        with self._lock:
            if generation != self._generation:
                return
            while len(self._answers) >= _MAX_ANSWERS:
                self._answers.pop(next(iter(self._answers)))
            self._answers[_key(method, params)] = (self._clock() + ttl_ms / 1000, thaw_json(answer))

    def forget(self, kind: str) -> None:
        """Drop the answers of a kind: "tools", "prompts", "resources" (lists and contents), or "" for all."""
        gone = {"resources", "read"} if kind == "resources" else {kind}
        with self._lock:
            self._generation += 1
            self._answers = {
                key: kept
                for key, kept in self._answers.items()
                if kind and _KINDS[key[0]] not in gone
            }


def _key(method: str, params: Mapping[str, Any] | None) -> tuple[str, str]:
    return method, json.dumps(params or {}, sort_keys=True, default=str)
