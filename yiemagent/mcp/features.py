"""What a client can ask a server for, by name: tools, resources, prompts, completions.

Each is one `request` or one per page; definitions and results are JSON as the server sent it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from yiemagent.abort import AbortSignal
from yiemagent.errors import McpProtocolError
from yiemagent.mcp.attendance import Attendance
from yiemagent.mcp.calls import Call, ProgressCallback
from yiemagent.mcp.jsonrpc import INVALID_PARAMS
from yiemagent.mcp.requester import Requester

__all__ = ["LIMIT_OF_CLIENT", "ServerFeatures"]

logger = logging.getLogger("yiemagent.mcp.features")

_MAX_PAGES = 1000
_MAX_ITEMS = 100_000
LIMIT_OF_CLIENT: Any = object()
"""Stands for a time limit that was left out: the client's own holds."""


class ServerFeatures:
    """What a client can ask for.

    Every method takes the options `signal`, `timeout_s` and `on_progress` of `McpClient.request` and raises as it does.
    """

    name: str
    timeout_s: float | None
    idle_timeout_s: float | None
    _attendance: Attendance
    _requester: Requester

    # --- tools ------------------------------------------------------------------------------------------------------

    def list_tools(self, **options: Any) -> list[dict[str, Any]]:
        """Give the definitions of all tools, every page of them."""
        return self._listed("tools/list", "tools", options)

    def call_tool(
        self, name: str, arguments: Mapping[str, Any] | None = None, **options: Any
    ) -> dict[str, Any]:
        """Call a tool and give its result, which may say `isError`."""
        params = {"name": name, "arguments": dict(arguments or {})}
        return self._asked("tools/call", params, options)

    def on_tools_changed(self, listener: Callable[[], object]) -> Callable[[], None]:
        """Have `listener` called when the server's tools are others, or its connection is another one.

        It runs on a thread of the client's, may use the client, and is called once for changes that come together.

        Returns:
            A function that takes the listener back.
        """
        return self.on_list_changed("tools", listener)

    def on_list_changed(self, kind: str, listener: Callable[[], object]) -> Callable[[], None]:
        """Have `listener` called when a list of the server's changed: "tools", "prompts" or "resources".

        Returns:
            A function that takes the listener back.

        Raises:
            ConfigurationError: there is no such list.
        """
        return self._attendance.list_changed(kind, listener, self._call("listen"))

    # --- resources --------------------------------------------------------------------------------------------------

    def list_resources(self, **options: Any) -> list[dict[str, Any]]:
        """Give all resources."""
        return self._listed("resources/list", "resources", options)

    def list_resource_templates(self, **options: Any) -> list[dict[str, Any]]:
        """Give all templates of resources."""
        return self._listed("resources/templates/list", "resourceTemplates", options)

    def read_resource(self, uri: str, **options: Any) -> list[dict[str, Any]]:
        """Give the contents of a resource."""
        contents = self._asked("resources/read", {"uri": uri}, options).get("contents")
        return contents if isinstance(contents, list) else []

    def subscribe_resource(
        self, uri: str, listener: Callable[[str], object], **options: Any
    ) -> Callable[[], None]:
        """Have `listener` called with the address of a resource when it changes, on a thread of the client's.

        Returns:
            A function that ends the subscription.
        """
        return self._attendance.subscribe(
            uri, listener, self._call("resources/subscribe", **options)
        )

    # --- prompts and completion -------------------------------------------------------------------------------------

    def list_prompts(self, **options: Any) -> list[dict[str, Any]]:
        """Give all prompts."""
        return self._listed("prompts/list", "prompts", options)

    def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, **options: Any
    ) -> dict[str, Any]:
        """Give a prompt with its arguments filled in: `description` and `messages`."""
        params = {"name": name, "arguments": dict(arguments or {})}
        return self._asked("prompts/get", params, options)

    def complete(
        self,
        ref: Mapping[str, Any],
        argument: str,
        value: str,
        *,
        context: Mapping[str, str] | None = None,
        **options: Any,
    ) -> list[str]:
        """Give what an argument of a prompt or a template may go on with.

        Args:
            ref: `{"type": "ref/prompt", "name": …}` or `{"type": "ref/resource", "uri": …}`.
            argument: its name.
            value: what was typed so far.
            context: other arguments that are known already.
            options: as in `request`.
        """
        params: dict[str, Any] = {"ref": dict(ref), "argument": {"name": argument, "value": value}}
        if context:
            params["context"] = {"arguments": dict(context)}
        completion = self._asked("completion/complete", params, options).get("completion")
        values = completion.get("values") if isinstance(completion, dict) else None
        return [str(item) for item in values] if isinstance(values, list) else []

    def set_log_level(self, level: str, **options: Any) -> None:
        """Say which log records are wanted from now on: the least severe of `versions.LOG_LEVELS`.

        Raises:
            ConfigurationError: there is no such level.
        """
        self._attendance.set_log_level(level, self._call("logging/setLevel", **options))

    # --- inside -----------------------------------------------------------------------------------------------------

    def _call(
        self,
        method: str,
        *,
        signal: AbortSignal | None = None,
        timeout_s: float | None = LIMIT_OF_CLIENT,
        on_progress: ProgressCallback | None = None,
    ) -> Call:
        limit_s = self.timeout_s if timeout_s is LIMIT_OF_CLIENT else timeout_s
        return Call(
            method,
            signal=signal,
            timeout_s=limit_s,
            idle_timeout_s=self.idle_timeout_s,
            on_progress=on_progress,
        )

    def _asked(
        self, method: str, params: Mapping[str, Any], options: Mapping[str, Any]
    ) -> dict[str, Any]:
        return self._requester.ask(method, params, self._call(method, **options))

    def _listed(self, method: str, key: str, options: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Follow the pages of a list to its end; a cursor that the server lost begins the list anew, once."""
        call = self._call(method, **options)
        try:
            return self._pages(method, key, call)
        except _CursorLost:
            return self._pages(method, key, call)

    def _pages(self, method: str, key: str, call: Call) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        cursors: set[str] = set()
        params: dict[str, Any] | None = None
        for _ in range(_MAX_PAGES):
            try:
                result = self._requester.ask(method, params, call)
            except McpProtocolError as error:
                if params is not None and error.code == INVALID_PARAMS:
                    raise _CursorLost(str(error), error.code, error.data) from error
                raise
            page = result.get(key)
            found += (
                [item for item in page if isinstance(item, dict)] if isinstance(page, list) else []
            )
            cursor = result.get("nextCursor")
            if not isinstance(cursor, str):
                return found
            if cursor in cursors or len(found) > _MAX_ITEMS:
                break
            cursors.add(cursor)
            params = {"cursor": cursor}
        logger.warning("the list %s of the server %r has no end and is cut", method, self.name)
        return found


class _CursorLost(McpProtocolError):
    """The server does not know a cursor of its own any more."""
