"""What a person reads when a model can't be asked: one line that says what to check, and no key."""

import socket

import pytest

from tests.support.certificate import CERTFILE, KEYFILE
from tests.support.http_server import Answer, ScriptedServer, json_answer, sse, sse_answer
from yiemagent.abort import AbortSignal
from yiemagent.context import LlmContext
from yiemagent.errors import AuthenticationError, BadResponseError, LlmConnectionError, LlmError
from yiemagent.llm import StreamOptions
from yiemagent.messages import UserMessage
from yiemagent.net.http import HttpClient
from yiemagent.net.retry import RetryPolicy
from yiemagent.providers import OpenAIChat
from yiemagent.streaming import ErrorEvent

KEY = "sk-" + "secret" * 8
NEVER = RetryPolicy(max_retries=0)
PAGE = "<!DOCTYPE html><html><head><title>Welcome</title></head><body><p>Log in</p></body></html>"
HTML = [("Content-Type", "text/html")]


def failure_of(base_url, stream=True, **options):
    options = {"api_key": KEY, "retry": NEVER, **options}
    provider = OpenAIChat("gpt-9", base_url=base_url, stream=stream, **options)
    *_, last = provider(LlmContext("", [UserMessage("hi")]), StreamOptions(), AbortSignal())
    provider.close()
    assert isinstance(last, ErrorEvent)
    line = last.message.error_message
    assert line == str(last.error)
    assert "\n" not in line and len(line) < 4_400
    assert KEY not in line and KEY not in repr(last)
    return last.error


def told(answer, **options):
    """The error of a server's answer to a provider whose key may be any word."""
    with ScriptedServer(answer) as server:
        options = {"retry": NEVER, "stream": False, **options}
        provider = OpenAIChat("gpt-9", base_url=f"{server.url}/v1", **options)
        *_, last = provider(LlmContext("", [UserMessage("hi")]), StreamOptions(), AbortSignal())
        provider.close()
        assert isinstance(last, ErrorEvent)
        return last.error


def asked(answer, **options):
    with ScriptedServer(answer) as server:
        return failure_of(f"{server.url}/v1", **options)


def error(message, **more):
    return {"error": {"message": message, **more}}


@pytest.mark.parametrize("stream", [True, False])
def test_wrong_key(stream):
    """A wrong key: where it came from, and the server's words without the key that it repeats."""
    said = f"Incorrect API key provided: {KEY}."
    failure = asked(json_answer(error(said), status=401), stream=stream)

    assert isinstance(failure, AuthenticationError)
    assert str(failure) == (
        "the model's server answered 401: Incorrect API key provided: ….; check the key (api_key) and what it may do"
    )


def test_wrong_key_of_the_environment(monkeypatch):
    """A wrong key from the environment: the variable's name."""
    with ScriptedServer(json_answer(error("no"), status=403)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)

        assert "check the key (OPENAI_API_KEY)" in str(failure_of(None, api_key=None))


def test_no_key(monkeypatch):
    """No key where another server wants one: that none was sent, and why not that of the environment."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    failure = asked(json_answer(error("who are you?"), status=401), api_key=None)

    assert "who are you?; no key was sent; give one as api_key" in str(failure)
    assert "OPENAI_API_KEY is sent only to" in str(failure)


def test_secret_of_a_header():
    """What the user's own headers carry is not shown either."""
    headers = {"Authorization": f"Bearer {KEY}", "X-Team": "blue"}
    failure = asked(json_answer(error(f"{KEY} of blue"), status=401), headers=headers, api_key=None)

    assert "… of blue; check the key (headers)" in str(failure)


def test_key_that_is_cut():
    """A key of which only the beginning is left, where a long message was cut, is not shown either."""
    failure = asked(json_answer(error("x" * 3_980 + KEY), status=400))

    assert KEY[:10] not in str(failure)
    assert str(failure).endswith("x…")


@pytest.mark.parametrize(
    "answer",
    [
        Answer(b"x" * 3_980 + KEY.encode()),
        Answer(f"<p>{'x' * 3_980}{KEY}".encode(), headers=HTML),
        sse_answer(f'data: {{"{"x" * 180}{KEY}\n\n'.encode()),
        json_answer(["x" * 180 + KEY]),
    ],
    ids=["words", "page", "damaged chunk", "no answer"],
)
def test_key_that_is_cut_amid_a_line(answer):
    """Nor is it where the line goes on behind the cut."""
    assert KEY[:10] not in str(asked(answer))


PAGE_ADVICE = "where an API should answer; check base_url, and whether a proxy or a log-in page stands before it"
WORDS = "No page of this answer is here; check base_url."


@pytest.mark.parametrize("key", ["x", "e", "none", "page", "answer", "sk-1234"])
@pytest.mark.parametrize(
    "answer, said",
    [
        (json_answer(error(WORDS), status=401), f"answered 401: {WORDS}; check the key (api_key)"),
        (json_answer(error(WORDS), status=400), f"the model's server answered 400: {WORDS}"),
        (
            Answer(PAGE.encode(), headers=HTML),
            f"sent a web page, 'Welcome Log in', {PAGE_ADVICE}",
        ),
        (Answer(b"none"), "sent neither JSON nor a stream of events: 'none'"),
    ],
    ids=["refused", "bad request", "page", "nonsense"],
)
def test_short_key(key, answer, said):
    """A key of less than 8 characters, as servers on one's own machine are given, takes nothing out of a text."""
    assert said in str(told(answer, api_key=key))


@pytest.mark.parametrize(
    "answer, said",
    [
        (json_answer(error("{key}?"), status=400), "the model's server answered 400: …?"),
        (Answer(b"{key}"), "sent neither JSON nor a stream of events: '…'"),
        (
            Answer(b"<p>{key}</p>", headers=HTML),
            f"sent a web page, '…', {PAGE_ADVICE}",
        ),
        (
            Answer(b"<p>{key}</p>", status=502),
            "the model's server answered 502: …; that is a page of a proxy or gateway on the way, which may be down",
        ),
        (
            Answer(b"", status=307, headers=[("Location", "/{key}")]),
            "/…', which is not followed; check base_url, ",
        ),
        (sse_answer(b'data: {"{key}\n\n'), "the model's server sent a damaged chunk: '{\"…'"),
        (sse_answer(sse({"error": {"message": "{key}!"}})), "the model's server: …!"),
        (json_answer(["{key}"]), "the model's server gave no answer but \"['…']\""),
        (json_answer({"a": "{key}"}), "the model call gave {'a': '…'}, which holds no message"),
        (json_answer({"choices": ["{key}"]}), "the model's response holds no message: '…'"),
        (json_answer({"message": ["{key}"]}), "the model call gave ['…'] as its message"),
        (json_answer({"role": "{key}"}), "the model call gave a message of the role '…'"),
        (Answer(b"HTTP/1.1 {key}\r\n\r\n", status=None), "/1.1 …"),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
@pytest.mark.parametrize("key", [KEY, "answered", "response", "base_url"])
def test_key_of_words(key, answer, said):
    """A key that the server repeats is out of its words alone: ours stay whole, whatever words the key is made of."""
    body = b"".join(answer.body).replace(b"{key}", key.encode())
    headers = [(name, value.replace("{key}", key)) for name, value in answer.headers]
    text = str(told(Answer(body, status=answer.status, headers=headers), api_key=key))

    assert said in text
    assert KEY not in text


@pytest.mark.parametrize(
    "status, said",
    [(404, "The model `gpt-9` does not exist"), (400, "gpt-9 is not a valid model ID")],
)
def test_unknown_model(status, said):
    """An unknown model: the server's words, and the name that was asked for."""
    failure = asked(json_answer(error(said), status=status))

    assert str(failure) == (
        f"the model's server answered {status}: {said}; check the model's name, 'gpt-9'"
    )


@pytest.mark.parametrize(
    "answer",
    [
        json_answer({"detail": "Not Found"}, status=404),
        Answer(b"404 page not found", status=404),
        Answer(PAGE.encode(), status=404, headers=HTML),
        Answer(b"", status=405),
        json_answer({"error": "Unexpected endpoint or method. (POST /chat/completions)"}),
    ],
)
def test_wrong_base_url(answer):
    """A wrong base URL: where was asked."""
    with ScriptedServer(answer) as server:
        failure = failure_of(f"{server.url}/api?key=hidden")

        assert f"check base_url, '{server.url}/api'" in str(failure)
        assert "hidden" not in str(failure)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(
    "location, shown",
    [
        ("https://other.test/v1/chat/completions", "https://other.test/v1/chat/completions"),
        ("https://me:pass@other.test:8443/v1?key=hidden#there", "https://other.test:8443/v1"),
        ("/login?next=hidden", "{url}/login"),
        ("http://[::1", "a malformed URL"),
        ("/" + "a" * 300, "{cut}…"),
    ],
    ids=["other server", "secrets", "relative", "malformed", "long"],
)
def test_redirect(status, location, shown):
    """A redirect: where it leads, without what may be secret, that it is not followed, and where was asked."""
    with ScriptedServer(
        Answer(b"moved", status=status, headers=[("Location", location)])
    ) as server:
        failure = failure_of(f"{server.url}/v1")

        cut = f"{server.url}/{'a' * 300}"[:200]
        assert isinstance(failure, BadResponseError) and failure.status == status
        assert len(server.requests) == 1
        assert str(failure) == (
            f"the model's server answered {status}: a redirect to '{shown.format(url=server.url, cut=cut)}', which is "
            f"not followed; check base_url, '{server.url}/v1'"
        )


def test_redirect_to_nowhere():
    """A redirect that names no address: so, or what the server says of it."""
    for body, said in (
        (b" ", "a redirect that names no address, which is not followed"),
        (b"use https", "use https"),
    ):
        with ScriptedServer(Answer(body, status=301)) as server:
            assert str(failure_of(f"{server.url}/v1")) == (
                f"the model's server answered 301: {said}; check base_url, '{server.url}/v1'"
            )


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("headers", [HTML, [("Content-Type", "application/json")], []])
def test_page_instead_of_json(stream, headers):
    """A web page with a good status: its words, and what may stand before the API; it is not asked for again."""
    answer = Answer(PAGE.encode(), headers=headers)
    failure = asked(answer, stream=stream, retry=RetryPolicy(base_delay_ms=1))

    assert isinstance(failure, BadResponseError)
    assert "sent a web page, 'Welcome Log in', where an API should answer; check base_url" in str(
        failure
    )


@pytest.mark.parametrize("status", [502, 503, 504])
def test_page_of_a_proxy(status):
    """A proxy's page: its words, whose it is, and how often was asked."""
    body = f"<html><head><title>{status} Bad</title></head><body><h1>{status} Bad</h1>nginx</body></html>"
    failure = asked(
        Answer(body.encode(), status=status, headers=HTML),
        retry=RetryPolicy(base_delay_ms=1, max_retries=1),
    )

    assert failure.status == status
    assert str(failure) == (
        f"the model's server answered {status}: {status} Bad nginx; that is a page of a proxy or gateway on the way, "
        "which may be down or overloaded; gave up after 2 requests"
    )


def test_certificate():
    """A certificate that nobody vouches for: whose it is, why, and what may be set."""
    with ScriptedServer(sse_answer(sse()), tls=(CERTFILE, KEYFILE)) as server:
        client = HttpClient(environ={})
        failure = failure_of(f"https://localhost:{server.port}/v1", client=client)

        assert isinstance(failure, LlmConnectionError)
        assert str(failure) == (
            f"the certificate of https://localhost:{server.port} is not trusted: self-signed certificate; "
            "SSL_CERT_FILE may name a file of certificates to trust"
        )


def test_nobody_listens():
    """A server that is not there: where it was looked for."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    failure = failure_of(f"{url}/v1")

    assert isinstance(failure, LlmConnectionError)
    assert str(failure) == (
        f"no connection to {url}: Connection refused; check base_url, '{url}/v1', and that the server is running"
    )


def test_tls_where_none_is_spoken():
    """An https address of a server that speaks plain http: where was asked."""
    with ScriptedServer(sse_answer(sse())) as server:
        url = f"https://127.0.0.1:{server.port}"

        assert f"check base_url, '{url}/v1'" in str(failure_of(f"{url}/v1"))


@pytest.mark.parametrize("status", [400, 422, 500])
def test_long_message(status):
    """A server's own message is shown up to 4,000 characters, on one line."""
    failure = asked(json_answer(error("word\n" * 2_000), status=status))

    assert type(failure) is LlmError
    assert str(failure).startswith(f"the model's server answered {status}: word word word")
    assert 4_000 < len(str(failure)) < 4_100


@pytest.mark.parametrize("told, requests", [("true", 2), ("false", 1)])
def test_server_that_says_whether_to_ask_again(told, requests):
    """What the server says of asking again goes before what its status means."""
    status = 400 if told == "true" else 503
    answer = json_answer(error("hm"), status=status, headers=[("x-should-retry", told)])
    with ScriptedServer(answer) as server:
        failure_of(server.url, retry=RetryPolicy(base_delay_ms=1, max_retries=1))

        assert len(server.requests) == requests
