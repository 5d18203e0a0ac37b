"""Proxies and CA bundle out of the environment."""

import pytest

from yiemagent.errors import ConfigurationError
from yiemagent.net.environment import read_environment

PROXY = "http://proxy.test:3128"


@pytest.mark.parametrize(
    "environ, url, expected",
    [
        ({}, "https://api.test/v1", None),
        ({"HTTPS_PROXY": PROXY}, "https://api.test/v1", PROXY),
        ({"HTTPS_PROXY": PROXY}, "http://api.test/v1", None),
        ({"http_proxy": PROXY}, "http://api.test/v1", PROXY),
        ({"ALL_PROXY": PROXY}, "https://api.test/v1", PROXY),
        ({"ALL_PROXY": "http://other:1", "https_proxy": PROXY}, "https://api.test", PROXY),
        ({"HTTPS_PROXY": "http://other:1", "https_proxy": PROXY}, "https://api.test", PROXY),
        ({"HTTPS_PROXY": "proxy.test:3128"}, "https://api.test", PROXY),
        ({"HTTPS_PROXY": " "}, "https://api.test", None),
        ({"HTTP_PROXY": PROXY, "REQUEST_METHOD": "GET"}, "http://api.test", None),
        ({"http_proxy": PROXY, "REQUEST_METHOD": "GET"}, "http://api.test", PROXY),
        ({"ALL_PROXY": PROXY}, "http://localhost:8080", None),
        ({"ALL_PROXY": PROXY}, "http://a.localhost", None),
        ({"ALL_PROXY": PROXY}, "http://127.0.0.2:8080", None),
        ({"ALL_PROXY": PROXY}, "http://[::1]:8080", None),
        ({"ALL_PROXY": PROXY}, "http://10.0.0.1", PROXY),
    ],
)
def test_proxy_for(environ, url, expected):
    """The proxy is that of the scheme, else that for all; this machine is reached without one."""
    assert read_environment(environ).proxy_for(url) == expected


@pytest.mark.parametrize(
    "no_proxy, url, direct",
    [
        ("api.test", "https://api.test", True),
        ("API.test", "https://api.test.", True),
        ("test", "https://api.test", True),
        (".test", "https://api.test", True),
        ("*.test", "https://api.test", True),
        ("pi.test", "https://api.test", False),
        ("other.test, api.test", "https://api.test", True),
        ("*", "https://api.test", True),
        ("api.test:443", "https://api.test", True),
        ("api.test:443", "https://api.test:8443", False),
        ("10.0.0.0/8", "http://10.1.2.3", True),
        ("10.0.0.0/8", "http://11.1.2.3", False),
        ("10.1.2.3", "http://10.1.2.3:8080", True),
        ("10.1.2.3", "http://api.test", False),
        ("api.test", "http://10.1.2.3", False),
        ("fd00::/8", "http://[fd00::1]", True),
        ("", "https://api.test", False),
    ],
)
def test_no_proxy(no_proxy, url, direct):
    """Hosts, domains, ports and networks in NO_PROXY are reached directly."""
    environment = read_environment({"ALL_PROXY": PROXY, "NO_PROXY": no_proxy})

    assert (environment.proxy_for(url) is None) == direct


def test_unsupported_proxy():
    """A SOCKS proxy is refused when it would be used, with what to do."""
    environment = read_environment({"ALL_PROXY": "socks5h://127.0.0.1:1080", "NO_PROXY": "a.test"})

    assert environment.proxy_for("https://a.test") is None
    with pytest.raises(ConfigurationError, match=r"only http and https proxies .* NO_PROXY"):
        environment.proxy_for("https://b.test")


@pytest.mark.parametrize("name", ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"])
def test_ca_bundle(name, tmp_path):
    """The CA bundle is the first that a variable names, and must exist."""
    bundle = tmp_path / "ca.pem"
    bundle.touch()

    assert read_environment({name: str(bundle)}).ca_bundle == str(bundle)
    assert read_environment({}).ca_bundle is None
    with pytest.raises(ConfigurationError, match=f"{name} names .* does not exist"):
        read_environment({name: str(tmp_path / "missing.pem")})
