"""Keeping tests off the network: every attempt to reach another machine is an error that says so.

Python tells its audit hooks (`sys.addaudithook`) of each connection before it is made, whoever makes it, so nothing is
replaced and nothing can be missed by a library that has got hold of a function earlier. Such a hook can't be taken out
again; outside of `forbid_network` ours looks at one empty list and returns.
"""

from __future__ import annotations

import contextlib
import functools
import ipaddress
import socket
import sys
import threading
from collections.abc import Iterator
from typing import Any

__all__ = ["NetworkForbidden", "forbid_network"]

# Guards the list of the blocks that are open, each by whether it lets loopback pass. Replaced whole, read without it.
_lock = threading.Lock()
_open: tuple[bool, ...] = ()


class NetworkForbidden(RuntimeError):
    """Something tried to reach the network inside of `forbid_network`; the text names whom."""


@contextlib.contextmanager
def forbid_network(*, loopback: bool = False) -> Iterator[None]:
    """Make every attempt to reach the network raise `NetworkForbidden`, in all threads of the process.

    Forbidden are connections, datagrams and the resolving of names; listening is not, nor are sockets of the Unix
    kind. Blocks may nest, and the strictest counts. Processes that are started inside go their own way, and a name that
    is handed straight to `socket.connect` is looked up before anybody is told.

    Args:
        loopback: whether this machine may be reached under its loopback addresses and as "localhost".
    """
    _install()
    _enter(loopback)
    try:
        yield
    finally:
        _leave(loopback)


def _enter(loopback: bool) -> None:  # noqa: FBT001 - what the block was given
    global _open  # noqa: PLW0603 - one state for the one hook of the process
    with _lock:
        _open = (*_open, loopback)


def _leave(loopback: bool) -> None:  # noqa: FBT001 - what the block was given
    global _open  # noqa: PLW0603 - one state for the one hook of the process
    with _lock:
        left = list(_open)
        left.remove(loopback)
        _open = tuple(left)


@functools.cache
def _install() -> None:
    sys.addaudithook(_hook)


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if _open and event.startswith("socket."):
        _judge(event, args)


_hook.__cantrace__ = True  # type: ignore[attr-defined]  # lets debuggers and coverage see it


def _judge(event: str, args: tuple[Any, ...]) -> None:
    if event in {"socket.connect", "socket.sendto", "socket.sendmsg"}:
        sock, address = args[0], args[1]
        if sock.family not in {socket.AF_INET, socket.AF_INET6} or not isinstance(address, tuple):
            return
        host, what = address[0], f"{address[0]!r}, port {address[1]}"
        allowed = all(_open) and _is_loopback(host)
    elif event in {"socket.getaddrinfo", "socket.gethostbyname"}:
        host = args[0]
        what = repr(host)
        allowed = not host or _is_address(host) or (all(_open) and _is_loopback(host))
    else:
        return
    if not allowed:
        if event == "socket.connect":
            args[0].close()  # whoever made it closes it for an OSError only
        raise NetworkForbidden(
            f"the network is forbidden here, and something tried to reach {what}; use a "
            f"ScriptedServer, a ScriptedModel or replay(path), or allow it"
        )


def _text(host: Any) -> str:
    return host.decode("ascii", "replace") if isinstance(host, (bytes, bytearray)) else str(host)


def _is_address(host: Any) -> bool:
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(_text(host).partition("%")[0])
        return True
    return False


def _is_loopback(host: Any) -> bool:
    text = _text(host).partition("%")[0].lower().rstrip(".")
    if _is_address(text):
        address = ipaddress.ip_address(text)
        mapped = getattr(address, "ipv4_mapped", None)
        return bool((mapped or address).is_loopback)
    return text == "localhost" or text.endswith(".localhost")
