"""Pins: which definitions of servers' tools are trusted, so that a server can't change what a model is told unseen.

A tool whose description, schema or hints differ from what was approved is shown as it was, and refuses to run until the
change is approved.
"""

from __future__ import annotations

import copy
import json
import logging
import os
import pathlib
import threading
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from yiemagent.errors import ConfigurationError, error_text
from yiemagent.payload import FrozenDict, freeze_json, thaw_json
from yiemagent.record import Record

__all__ = ["PinnedChange", "Pins"]

logger = logging.getLogger("yiemagent.mcp.pinning")

_PINNED = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
_VERSION = 1


@attrs.frozen(eq=False, repr=False)
class PinnedChange(Record):
    """A definition that differs from what was approved.

    Args:
        server: what the server's tools are prefixed with; empty where they aren't.
        tool: the server's name of the tool.
        before: what was approved; None where nothing was.
        after: what the server says now.
    """

    server: str
    tool: str
    before: FrozenDict | None
    after: FrozenDict


class Pins:
    """The definitions that are trusted, by server and tool; used by many threads at once.

    Args:
        path: a JSON file that keeps them; made with the first pin. None: they are kept in memory.
        trust_new: whether a tool that was never seen is trusted, and pinned, at once; else it waits for `approve`.
        on_change: is told of each change once, on the thread that found it; what it raises is logged.

    Raises:
        ConfigurationError: the file holds no pins.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        trust_new: bool = True,
        on_change: Callable[[PinnedChange], object] | None = None,
    ) -> None:
        self._path = None if path is None else pathlib.Path(path)
        self._trust_new = trust_new
        self._on_change = on_change
        # Guards the fields below and the file; nothing foreign runs while it is held.
        self._lock = threading.Lock()
        self._approved: dict[str, dict[str, Any]] = self._read()
        self._waiting: dict[tuple[str, str], PinnedChange] = {}
        self._listeners: dict[object, Callable[[], object]] = {}

    @property
    def waiting(self) -> tuple[PinnedChange, ...]:
        """The changes that wait for approval."""
        with self._lock:
            return tuple(self._waiting.values())

    def judge(
        self, server: str, definition: Mapping[str, Any]
    ) -> tuple[Mapping[str, Any] | None, str]:
        """Give the definition to show for a tool, and why it may not be called; see `remote_tools.ToolPins`."""
        tool = str(definition["name"])
        now = {key: definition[key] for key in _PINNED if key in definition}
        with self._lock:
            before = self._approved.get(server, {}).get(tool)
            if before == now:
                self._waiting.pop((server, tool), None)
                return definition, ""
            if before is None and self._trust_new:
                self._approved.setdefault(server, {})[tool] = copy.deepcopy(thaw_json(now))
                self._write()
                return definition, ""
            change = PinnedChange(server, tool, freeze_json(before), freeze_json(now))
            is_news = self._waiting.get((server, tool)) != change
            self._waiting[server, tool] = change
        if is_news:
            self._tell(change)
        reason = (
            f"The server changed the tool {tool!r} after it was approved; "
            f"it is blocked until a person approves the change."
        )
        return before, reason

    def approve(
        self, tool: str | None = None, *, server: str | None = None
    ) -> tuple[PinnedChange, ...]:
        """Trust what servers say now, and have those who use these pins list their tools again.

        Args:
            tool: the server's name of the tool; None: all that wait.
            server: its prefix; None: any.

        Returns:
            What was approved.
        """
        with self._lock:
            found = [
                change
                for change in self._waiting.values()
                if tool in {None, change.tool} and server in {None, change.server}
            ]
            for change in found:
                del self._waiting[change.server, change.tool]
                self._approved.setdefault(change.server, {})[change.tool] = thaw_json(change.after)
            if found:
                self._write()
            listeners = tuple(self._listeners.values())
        if found:
            for listener in listeners:
                listener()
        return tuple(found)

    def on_approved(self, listener: Callable[[], object]) -> Callable[[], object]:
        """Have `listener` called when more is trusted; gives a function that takes it back."""
        key = object()
        with self._lock:
            self._listeners[key] = listener
        return lambda: self._listeners.pop(key, None)

    def _tell(self, change: PinnedChange) -> None:
        logger.warning(
            "the tool %r of the server %r is not as it was approved", change.tool, change.server
        )
        if self._on_change is None:
            return
        try:
            self._on_change(change)
        except Exception:  # the callback is the user's; its mistake must not unblock or lose a tool
            logger.warning("a callback for changed tools raised", exc_info=True)

    def _read(self) -> dict[str, dict[str, Any]]:
        if self._path is None or not self._path.exists():
            return {}
        try:
            held = json.loads(self._path.read_text(encoding="utf-8"))
            kept = {_VERSION: held["tools"]}[held["version"]]
            return {server: dict(tools) for server, tools in kept.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigurationError(f"{self._path} holds no pins: {error_text(error)}") from error

    def _write(self) -> None:
        if self._path is None:
            return
        text = json.dumps({"version": _VERSION, "tools": self._approved}, indent=1, sort_keys=True)
        beside = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        beside.write_text(text + "\n", encoding="utf-8")
        beside.replace(self._path)
