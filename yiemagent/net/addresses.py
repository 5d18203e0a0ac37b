"""Which addresses may be connected to: public ones, and those that the user allows.

The check is part of resolving, so it is made on the very addresses that are then connected to, at every connection and
every redirect. A name that gives another address the next time (DNS rebinding), a number in place of a name, and a name
for this machine are all the same to it.
"""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from yiemagent.errors import ConfigurationError, HttpError
from yiemagent.net.exchange import Resolver, resolve

__all__ = ["guarded", "is_public"]

_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
# RFC 6052: addresses of IPv4 behind a translator; the last 32 bits say which.
_TRANSLATED = (ipaddress.ip_network("64:ff9b::/96"), ipaddress.ip_network("64:ff9b:1::/48"))


def is_public(text: str) -> bool:
    """Whether an address is one of the open internet, by the registries of RFC 6890 that Python knows.

    Loopback, private, link-local, shared and reserved ones are not, nor is multicast; an address of IPv6 that holds
    one of IPv4 is judged by both.
    """
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return all(one.is_global and not one.is_multicast for one in (address, *_inner(address)))


def _inner(address: _Address) -> list[_Address]:
    """Give the IPv4 addresses that one of IPv6 leads to."""
    if isinstance(address, ipaddress.IPv4Address):
        return []
    found: list[_Address | None] = [address.ipv4_mapped, address.sixtofour]
    found += address.teredo or ()
    if any(address in network for network in _TRANSLATED):
        found.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    if int(address) >> 32 == 0:  # IPv4-compatible, from the first days of IPv6
        found.append(ipaddress.IPv4Address(int(address)))
    return [one for one in found if one is not None]


class _Allowed:
    """What the user allows: names, `name:port`, addresses and networks."""

    def __init__(self, entries: Iterable[str]) -> None:
        self._names: set[tuple[str, int | None]] = set()
        self._networks: list[ipaddress.IPv4Network | ipaddress.IPv6Network] = []
        for entry in entries:
            self._add(entry.strip().lower())

    def _add(self, entry: str) -> None:
        with contextlib.suppress(ValueError):
            self._networks.append(ipaddress.ip_network(entry.strip("[]"), strict=False))
            return
        name, colon, port = entry.rpartition(":")
        if not colon:
            name, port = entry, ""
        plain = name.strip("[]").rstrip(".")
        if not plain or "/" in plain or "*" in plain or (colon and not port.isdecimal()):
            raise ConfigurationError(
                f"{entry!r} names no host: give 'intranet.example', 'localhost:8080', '10.1.2.3' or '10.0.0.0/8'"
            )
        self._names.add((plain, int(port) if port else None))

    def has_name(self, host: str, port: int) -> bool:
        plain = host.lower().strip("[]").rstrip(".")
        return bool({(plain, None), (plain, port)} & self._names)

    def has_address(self, text: str) -> bool:
        with contextlib.suppress(ValueError):
            address = ipaddress.ip_address(text)
            return any(
                address.version == network.version and address in network
                for network in self._networks
            )
        return False


def guarded(allowed: Iterable[str] = (), resolver: Resolver = resolve) -> Resolver:
    """Give a resolver for an `HttpClient` that gives public and allowed addresses only.

    Args:
        allowed: hosts whose addresses are taken whatever they are (`"localhost:8080"`, `"intranet.example"`), addresses
            and networks (`"10.0.0.0/8"`).
        resolver: gives the addresses of a host.

    Raises:
        ConfigurationError: an entry names no host.
    """
    known = _Allowed(allowed)

    def resolve_guarded(host: str, port: int) -> Sequence[tuple[Any, Any, int, str, Any]]:
        """Give the addresses of `host`.

        Raises:
            HttpError: one of them is not public and not allowed: a name that mixes both is not to be trusted.
        """
        addresses = resolver(host, port)
        if known.has_name(host, port):
            return addresses
        for address in addresses:
            text = str(address[4][0])
            if not is_public(text) and not known.has_address(text):
                raise HttpError(
                    f"{host!r} leads to {text}, an address that is not public; it is not fetched unless it is allowed"
                )
        return addresses

    return resolve_guarded
