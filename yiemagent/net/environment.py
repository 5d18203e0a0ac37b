"""What the environment says about the way out: proxies, hosts that need none, and the CA bundle.

Read once and then passed on, so that a request never changes its way in the middle of a run. `.netrc` is not read.
"""

from __future__ import annotations

import contextlib
import ipaddress
import pathlib
from collections.abc import Mapping
from urllib.parse import urlsplit

import attrs

from yiemagent.errors import ConfigurationError
from yiemagent.record import Record

__all__ = ["NetEnvironment", "read_environment"]

_CA_VARIABLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")


@attrs.frozen(eq=False, repr=False)
class NetEnvironment(Record):
    """The way out.

    Args:
        proxies: URL of the proxy by the scheme of what is asked for: "http", "https", and "all" for either.
        no_proxy: names, addresses and networks that are reached without a proxy; "*" is everything.
        ca_bundle: file of the trusted certificates, or None for those that come with the library.
    """

    proxies: Mapping[str, str]
    no_proxy: tuple[str, ...] = ()
    ca_bundle: str | None = None

    def proxy_for(self, url: str) -> str | None:
        """Give the proxy for `url`, or None; this machine itself never needs one.

        Raises:
            ConfigurationError: the proxy is of a kind that is not supported.
        """
        if not self.proxies:
            return None
        parts = urlsplit(url)
        host = (parts.hostname or "").rstrip(".")
        proxy = self.proxies.get(parts.scheme) or self.proxies.get("all")
        if not proxy or _is_local(host) or self._is_exempt(host, _port(url)):
            return None
        proxy = proxy if "://" in proxy else f"http://{proxy}"
        if urlsplit(proxy).scheme not in {"http", "https"}:
            raise ConfigurationError(
                f"the proxy for {parts.scheme}://{host} is {urlsplit(proxy).scheme!r}; only http and https proxies "
                f"are supported: change the proxy variable, or name the host in NO_PROXY"
            )
        return proxy

    def _is_exempt(self, host: str, port: int | None) -> bool:
        for entry in self.no_proxy:
            name, _, entry_port = entry.partition(":") if entry.count(":") == 1 else (entry, "", "")
            if entry_port and entry_port != str(port):
                continue
            if name == "*" or _matches(host, name):
                return True
        return False


def read_environment(environ: Mapping[str, str]) -> NetEnvironment:
    """Read the usual variables; a lower-case name goes before its upper-case twin.

    Raises:
        ConfigurationError: a CA bundle is named that doesn't exist.
    """
    proxies = {}
    for scheme in ("http", "https", "all"):
        if proxy := _variable(environ, f"{scheme}_proxy"):
            proxies[scheme] = proxy
    if "REQUEST_METHOD" in environ and "http_proxy" not in environ:
        proxies.pop("http", None)  # under CGI a client sets HTTP_PROXY with its header "Proxy"
    exempt = _variable(environ, "no_proxy").replace(",", " ").split()
    return NetEnvironment(proxies, tuple(name.lower() for name in exempt), _ca_bundle(environ))


def _variable(environ: Mapping[str, str], name: str) -> str:
    return (environ.get(name) or environ.get(name.upper()) or "").strip()


def _ca_bundle(environ: Mapping[str, str]) -> str | None:
    for name in _CA_VARIABLES:
        if path := environ.get(name):
            if not pathlib.Path(path).exists():
                raise ConfigurationError(f"{name} names {path!r}, which does not exist")
            return path
    return None


def _port(url: str) -> int | None:
    parts = urlsplit(url)
    return parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(text)
    return None


def _is_local(host: str) -> bool:
    address = _address(host)
    return address.is_loopback if address else host == "localhost" or host.endswith(".localhost")


def _matches(host: str, name: str) -> bool:
    address = _address(host)
    if address:
        with contextlib.suppress(ValueError):
            return address in ipaddress.ip_network(name.strip("[]"), strict=False)
        return False
    suffix = name.removeprefix("*").removeprefix(".")
    return bool(suffix) and (host == suffix or host.endswith(f".{suffix}"))
