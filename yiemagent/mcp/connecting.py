"""A server's tools in a store of an agent's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from yiemagent.remote_tools import Discovery, RemoteTools, discovery_tool

if TYPE_CHECKING:
    from yiemagent.abort import AbortSignal
    from yiemagent.registry import ToolStore
    from yiemagent.remote_tools import McpServer, ToolPins

__all__ = ["connect"]


def connect(
    store: ToolStore,
    client: McpServer,
    *,
    eager: bool = True,
    pins: ToolPins | None = None,
    signal: AbortSignal | None = None,
) -> RemoteTools:
    """Put a server's tools into a store, and keep them up to date as the server tells that they change.

    Args:
        store: where they go.
        client: an `McpClient`, or any callable of its form. With a name of the user's, its tools are called
            `name__tool`; several servers in one store should have one each.
        eager: whether to ask for the tools at once; else the tool `list_tools` does, when a model calls it. One such
            tool serves all servers of the store.
        pins: which definitions are trusted, such as `Pins`; None: all are.
        signal: ends the asking.

    Returns:
        What ties the two: `names` maps the names that models know to the server's own, `disconnect` undoes it all.

    Raises:
        ConfigurationError: `client` can't be called, or its server can't be started.
        ToolError, McpError, AbortedError: it could not be asked; nothing is registered then.
    """
    tied = RemoteTools(store, client, pins=pins)
    if eager:
        tied.update(signal)
        return tied
    held = store.get("list_tools")
    if held is not None and isinstance(held.function, Discovery):
        held.function.add(tied)
    elif held is not None:
        store.replace(held, discovery_tool(store, tied))
    else:
        store.register(discovery_tool(store, tied))
    return tied
