"""The tool that fetches web pages."""

from __future__ import annotations

import socket
import threading
import time

import jsonschema
import pytest

from tools.web import fetch_url
from yiemagent.abort import AbortSignal
from yiemagent.errors import AbortedError, ConfigurationError, ToolError
from yiemagent.testing import HttpAnswer, ScriptedServer


def page(body, kind="text/html", **options):
    """An answer with a type."""
    headers = [("Content-Type", kind)] if kind else []
    return HttpAnswer(body, headers=[*headers, *options.pop("more", [])], **options)


def fetch(server, path="/", signal=None, allow=("127.0.0.1",), **args):
    """Fetch from a local server, which is allowed."""
    tool = fetch_url.get_tool(allow)
    return tool.execute("call_1", {"url": f"{server.url}{path}", **args}, signal)


def failing(*answers, **args):
    """The words of a fetch that fails."""
    with ScriptedServer(*answers) as server, pytest.raises(ToolError) as caught:
        fetch(server, **args)
    return str(caught.value)


def test_schema_and_examples_are_sound():
    """The schema is one, the examples fit it, and the tool is read-only."""
    tool = fetch_url.get_tool(())
    jsonschema.Draft202012Validator.check_schema({**tool.input_schema})
    for _, arguments in tool.examples:
        jsonschema.validate({**arguments}, {**tool.input_schema})

    assert tool.annotations["readOnlyHint"]


def test_a_page_is_given_as_text():
    """Tags go, links stay with their whole address."""
    body = "<html><head><style>x</style></head><body><h1>Hi</h1><a href='b'>more</a></body></html>"
    with ScriptedServer(page(body)) as server:
        result = fetch(server, "/a/")

        assert result.text == f"# Hi\n\n[more]({server.url}/a/b)"
        assert result.details["status"] == 200
        assert server.requests[0].headers["user-agent"] == "yiemagent"


def test_a_page_can_be_given_as_its_source():
    """With `source` the page comes as it is."""
    with ScriptedServer(page("<p>x</p>")) as server:
        assert fetch(server, source=True).text == "<p>x</p>"


@pytest.mark.parametrize(
    "kind",
    ["application/json", "text/plain; charset=utf-8", "application/ld+json", "text/csv", None],
)
def test_other_texts_come_as_they_are(kind):
    """JSON, plain text, and text without a type are not changed."""
    with ScriptedServer(page('{"a": "<b>"}', kind)) as server:
        assert fetch(server).text == '{"a": "<b>"}'


@pytest.mark.parametrize(
    "kind, body, text",
    [
        ("text/plain; charset=ISO-8859-1", "é".encode("latin-1"), "é"),
        ("text/html", b'<meta charset="windows-1252"><p>\x80', "€"),
        ("text/plain; charset=hex", b"ab", "ab"),
        ("text/plain; charset=unicode_escape", b"\\x41", "\\x41"),
        ("text/plain; charset=punycode", b"ab-", "ab-"),
        ("text/plain; charset=nonsense", "é".encode(), "é"),
        ("text/plain", b"\xff", "�"),
    ],
)
def test_the_encoding_is_the_named_one(kind, body, text):
    """Header and page may name it; one that is none counts as UTF-8."""
    with ScriptedServer(page(body, kind)) as server:
        assert fetch(server).text == text


def test_a_long_text_is_given_in_parts():
    """A part says how to go on, and the parts are the whole."""
    body = "".join(f"{n:06d}" for n in range(8000))
    with ScriptedServer(page(body, "text/plain")) as server:
        first = fetch(server).text
        parts = [first, *(fetch(server, start=start).text for start in (20_000, 40_000))]

    assert first.endswith("\n[characters 0 to 20000 of 48000; go on with start=20000]")
    assert "".join(part.partition("\n[")[0] for part in parts) == body


def test_reading_on_behind_the_end_is_told():
    """There is no text behind the end."""
    assert "has 2 characters; there is none at 5" in failing(page("ab", "text/plain"), start=5)


def test_an_empty_page_says_so():
    """Nothing is told in words."""
    with ScriptedServer(page("")) as server:
        assert fetch(server).text == "(the page is empty)"


# -- limits --


def test_a_body_is_read_up_to_the_limit():
    """Of an endless body the first bytes are taken and the rest is not waited for."""
    block = b"x" * 100_000
    with ScriptedServer(page([block] * 21 + [999.0], "text/plain", length=False)) as server:
        result = fetch(server, start=1_990_000)

    assert result.details["chars"] == fetch_url.MAX_BYTES
    assert result.text.endswith("[what is behind the first 2000000 bytes was not read]")


@pytest.mark.parametrize(
    "kind", ["image/png", "application/octet-stream", "application/zip", "video/mp4"]
)
def test_only_text_is_read(kind):
    """What is no text by its type is refused before its body is read."""
    assert f"is {kind}; only text is read" in failing(page([b"x", 999.0], kind, length=False))


def test_what_is_no_text_in_spite_of_its_type_is_refused():
    """Null bytes are in no text."""
    assert "is no text" in failing(page(b"PK\0\0", None))


@pytest.mark.parametrize("status", [404, 500])
def test_an_error_of_the_server_is_told(status):
    """The status and the beginning of what the server says are told."""
    assert f"answered {status}: Not here" in failing(
        page("<h1>Not here</h1>", status=status)
    ).replace("# ", "")


def test_redirects_are_followed_up_to_five():
    """A redirect is followed, and one too many is told."""
    away = page("", status=302, more=[("Location", "/next")])
    with ScriptedServer(*[away] * 5, page("there", "text/plain")) as server:
        result = fetch(server)

        assert result.text == "there"
        assert result.details["url"] == f"{server.url}/next"
    assert "redirects more than 5 times" in failing(away)


def test_a_redirect_that_leads_nowhere_is_told():
    """A redirect without a target is not followed."""
    assert "redirects to nowhere, which is not followed" in failing(page("", status=302))


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://example.org/", "gopher://x"])
def test_a_redirect_to_another_scheme_is_refused(target):
    """Only http and https are spoken, behind a redirect too."""
    assert "only http and https" in failing(page("", status=302, more=[("Location", target)]))


# -- which addresses --


@pytest.mark.parametrize(
    "url, words",
    [
        ("ftp://example.org/", "no address that begins with"),
        ("file:///etc/passwd", "no address that begins with"),
        ("example.org", "no address that begins with"),
        ("http://", "no address that begins with"),
        ("http://[bad", "is no address"),
        ("http://me:secret@example.org/", "user name or a password"),
        ("http://a b/", "can't send a request"),
    ],
)
def test_what_is_no_address_of_the_web_is_refused(url, words):
    """Other schemes, half addresses and passwords are told."""
    with pytest.raises(ToolError, match=words) as caught:
        fetch_url.get_tool(()).execute("call_1", {"url": url})

    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "0x7f000001"])
def test_private_addresses_are_refused(host):
    """This machine is not fetched from, whatever it is called, and no request reaches it."""
    with ScriptedServer(page("x")) as server:
        tool = fetch_url.get_tool(())
        with pytest.raises(ToolError, match="an address that is not public"):
            tool.execute("call_1", {"url": f"http://{host}:{server.port}/"})

        assert server.requests == []


def test_a_redirect_to_a_private_address_is_refused():
    """An allowed server can't lead to one that is not: the check is made at each connection."""
    with ScriptedServer(page("inside")) as inside:
        away = page("", status=302, more=[("Location", f"http://localhost:{inside.port}/")])
        with ScriptedServer(away) as server, pytest.raises(ToolError, match="'localhost' leads to"):
            fetch(server, allow=[f"127.0.0.1:{server.port}"])

        assert inside.requests == []


def test_what_is_allowed_comes_from_the_environment(monkeypatch):
    """`YIEMAGENT_FETCH_ALLOW` names hosts and networks, and what names none is told when the tool is loaded."""
    with ScriptedServer(page("inside", "text/plain")) as server:
        monkeypatch.setenv("YIEMAGENT_FETCH_ALLOW", "intranet.example, 127.0.0.0/8")

        assert fetch(server, allow=None).text == "inside"
    monkeypatch.setenv("YIEMAGENT_FETCH_ALLOW", "*")
    with pytest.raises(ConfigurationError, match="names no host"):
        fetch_url.get_tool()


def test_no_proxy_is_used(monkeypatch):
    """A proxy of the environment would hide which address is asked, so the tool goes without."""
    with ScriptedServer(page("direct", "text/plain")) as server, ScriptedServer() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)

        assert fetch(server).text == "direct"
        assert proxy.requests == []


# -- waits end --


def test_a_server_that_is_not_there_is_told():
    """A refused connection is an error in words."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(ToolError, match="no connection to"):
        fetch_url.get_tool(["127.0.0.1"]).execute("call_1", {"url": f"http://127.0.0.1:{port}/"})


def test_an_abort_ends_a_fetch():
    """A set signal ends the wait for a server that says nothing more."""
    signal, asked = AbortSignal(), threading.Event()
    answer = page([asked.set, b"x", 999.0], "text/plain", length=False)
    with ScriptedServer(answer) as server:
        waiter = threading.Thread(target=lambda: asked.wait(20) and signal.abort(), daemon=True)
        waiter.start()
        begun = time.monotonic()
        with pytest.raises(AbortedError):
            fetch(server, signal=signal)
        waiter.join()

    assert time.monotonic() - begun < 10
