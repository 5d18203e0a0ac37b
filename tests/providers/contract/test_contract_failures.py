"""Every provider, and what can be wrong with a server: one line that says what to check, and never a key."""

from __future__ import annotations

import contextlib
import copy
import json
import logging
import pickle
import traceback

import pytest

from tests.providers.contract.apis import APIS, CONTEXT, KEY, transcript
from tests.providers.contract.asking import ask
from tests.providers.contract.stalls import client_of, server_of
from yiemagent.abort import AbortSignal
from yiemagent.errors import (
    AuthenticationError,
    BadResponseError,
    ContextOverflowError,
    LlmConnectionError,
    LlmError,
    RateLimitError,
)
from yiemagent.llm import StreamOptions
from yiemagent.net.http import HttpClient
from yiemagent.net.retry import RetryPolicy
from yiemagent.streaming import DoneEvent, ErrorEvent, StreamNoticeEvent
from yiemagent.testing import HttpAnswer, ScriptedServer, json_answer, sse_answer

EACH = [pytest.param(api, id=api.name) for api in APIS]
QUICK = RetryPolicy(base_delay_ms=1)
PAGE = (
    b"<!doctype html><html><head><title>Sign in</title></head><body><h1>Sign in</h1></body></html>"
)


@contextlib.contextmanager
def asked(api, *answers, **options):
    """A server with a script, and the events of one question to it."""
    with ScriptedServer(*answers) as server:
        provider = api.make(server.url, **options)
        yield server, ask(provider)
        provider.close()


def failure(api, *answers, **options):
    """The error of a question, its text checked to be one line that shows no key."""
    with asked(api, *answers, **options) as (_, events):
        last = events[-1]
    return checked(last)


def checked(last):
    """The error of an Error event, after a look at all that it shows."""
    assert isinstance(last, ErrorEvent)
    shown = [
        str(last.error),
        repr(last.error),
        last.message.error_message,
        repr(last),
        "".join(traceback.format_exception(last.error)),
        repr(pickle.loads(pickle.dumps(last.error)).__dict__),
    ]
    assert not any(KEY in text for text in shown), shown
    assert "\n" not in last.message.error_message.strip()
    assert str(last.error) == last.message.error_message
    return last.error


def refused(status, message, **fields):
    """A failing answer in the form that most servers use."""
    return json_answer({"error": {"message": message, **fields}}, status=status)


# -- what the server says --


@pytest.mark.parametrize("api", EACH)
@pytest.mark.parametrize(("status", "kind", "retryable"), [
    (400, LlmError, False),
    (401, AuthenticationError, False),
    (403, AuthenticationError, False),
    (404, LlmError, False),
    (408, LlmError, True),
    (409, LlmError, True),
    (413, LlmError, False),
    (422, LlmError, False),
    (429, RateLimitError, True),
    (500, LlmError, True),
    (502, LlmError, True),
    (503, LlmError, True),
    (529, LlmError, True),
])  # fmt: skip
def test_a_status_that_means_failure(api, status, kind, retryable):
    """Each status has its kind of error, keeps the server's words, and says whether asking again may help."""
    error = failure(api, refused(status, "the server's own words"))

    assert isinstance(error, kind)
    assert (error.status, error.retryable) == (status, retryable)
    assert "the server's own words" in str(error) and str(status) in str(error)


@pytest.mark.parametrize("api", EACH)
@pytest.mark.parametrize("status", [400, 401, 404, 500])
@pytest.mark.parametrize("body", [
    {"error": {"message": f"bad key {KEY}", "type": "x", "code": None}},
    {"error": f"bad key {KEY}"},
    {"message": f"bad key {KEY}"},
    {"detail": f"bad key {KEY}"},
    [{"error": {"message": f"bad key {KEY}", "status": "INVALID"}}],
    {"type": "error", "error": {"type": "x", "message": f"bad key {KEY}"}, "request_id": "r"},
])  # fmt: skip
def test_a_key_that_the_server_repeats_is_not_shown(api, status, body):
    """Whatever form an error has, its words are kept, and a key in it is not."""
    assert "bad key …" in str(failure(api, json_answer(body, status=status)))


@pytest.mark.parametrize("api", EACH)
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("body", [
    [KEY],
    {"a": KEY},
    {"output": KEY},
    {"choices": KEY},
    {"choices": [KEY]},
    {"message": [KEY]},
    {"candidates": KEY},
    {"type": "error", "error": KEY},
])  # fmt: skip
def test_a_key_in_what_is_no_answer_is_not_shown(api, stream, body):
    """Nor is a key that the server repeats with a status that promises an answer."""
    error = failure(api, json_answer(body), stream=stream, retry=RetryPolicy(max_retries=0))

    assert KEY not in str(error)


@pytest.mark.parametrize("api", EACH)
def test_a_wrong_key(api):
    """A refused key is said to be the thing to look at."""
    error = failure(api, refused(401, "Incorrect API key provided"))

    assert isinstance(error, AuthenticationError)
    assert "key" in str(error).lower()


@pytest.mark.parametrize("api", EACH)
def test_an_unknown_model(api):
    """A model that the server doesn't know is named with the server's words."""
    error = failure(api, refused(404, "The model `the-model` does not exist"))

    assert "The model `the-model` does not exist" in str(error)
    assert not error.retryable


@pytest.mark.parametrize("api", EACH)
def test_a_wrong_base_url(api):
    """A 404 without an API behind it makes one look at the base URL."""
    for answer in (HttpAnswer(b"404 page not found", status=404), HttpAnswer(PAGE, status=404)):
        assert "base_url" in str(failure(api, answer))


@pytest.mark.parametrize("api", EACH)
@pytest.mark.parametrize("kind", ["text/html; charset=utf-8", "application/json", None])
def test_a_page_in_place_of_an_answer(api, kind):
    """A page with status 200, as proxies and log-ins send it, is an error that shows its words."""
    headers = [("Content-Type", kind)] if kind else []
    error = failure(api, HttpAnswer(PAGE, headers=headers))

    assert isinstance(error, BadResponseError)
    assert "Sign in" in str(error)
    assert "base_url" in str(error)


@pytest.mark.parametrize("api", EACH)
@pytest.mark.parametrize("body", [
    json.dumps({"error": {"message": "long " * 4000}}).encode(),
    b"long " * 4000,
    b"<p>" + b"long " * 4000,
])  # fmt: skip
def test_long_words_of_a_server_are_cut(api, body):
    """Of what a server says 4,000 characters are shown at most."""
    text = str(failure(api, HttpAnswer(body, status=400)))

    assert 3_000 < len(text) < 4_300


@pytest.mark.parametrize("api", EACH)
@pytest.mark.parametrize("answer", [
    HttpAnswer(b"busy " * 400_000, status=503),
    HttpAnswer(b"busy or not", status=503, cut=5),
    HttpAnswer([b"busy"], status=503, length=False, then="reset"),
], ids=["large", "cut", "reset"])  # fmt: skip
def test_a_failure_whose_body_does_not_come_whole(api, answer):
    """The status counts, and what came of the body."""
    error = failure(api, answer)

    assert (error.status, error.retryable) == (503, True)
    assert "503: busy" in str(error)


@pytest.mark.parametrize("api", EACH)
def test_a_proxy_that_finds_nobody(api):
    """A 502 page of a proxy is told in its own words, without its tags, and asked again."""
    page = b"<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>nginx</body></html>"
    with asked(
        api, HttpAnswer(page, status=502), sse_answer(transcript(api, "text")), retry=QUICK
    ) as (server, events):
        notice = events[0]

        assert isinstance(notice, StreamNoticeEvent)
        assert "502 Bad Gateway nginx" in notice.message and "<" not in notice.message
        assert isinstance(events[-1], DoneEvent)
        assert len(server.requests) == 2


@pytest.mark.parametrize("api", EACH)
def test_a_context_that_is_too_large(api):
    """An overflow of the context window is told apart, since a shorter history helps and a retry doesn't."""
    error = failure(api, refused(400, "prompt is too long: 208310 tokens > 200000 maximum"))

    assert isinstance(error, ContextOverflowError) and not error.retryable


@pytest.mark.parametrize("api", EACH)
def test_a_redirect_is_not_followed_with_a_key(api):
    """The key goes to nobody else; the error names where it would have gone, and what to check."""
    with ScriptedServer() as other:
        error = failure(api, HttpAnswer(status=308, headers=[("Location", f"{other.url}/v2")]))

        assert f"{other.url}/v2" in str(error) and "base_url" in str(error)
        assert not other.requests


# -- no answer at all --


@pytest.mark.parametrize("api", EACH)
def test_nobody_listens(api):
    """A refused connection names the server."""
    with ScriptedServer() as server:
        url = server.url
    provider = api.make(url)
    error = checked(ask(provider)[-1])

    assert isinstance(error, LlmConnectionError) and error.retryable
    assert url in str(error) and "refused" in str(error)


@pytest.mark.parametrize("api", EACH)
def test_a_host_that_does_not_exist(api):
    """A name that can't be resolved names the server."""

    def resolver(_host, _port):
        raise OSError(-2, "Name or service not known")

    client = HttpClient(environ={}, resolver=resolver)
    error = checked(ask(api.make("http://api.test", client=client))[-1])

    assert isinstance(error, LlmConnectionError)
    assert "http://api.test" in str(error) and "not known" in str(error)


@pytest.mark.parametrize("api", EACH)
def test_a_certificate_that_nobody_trusts(api):
    """An untrusted certificate says so, and how to trust it; nothing is sent, and it is not asked again."""
    answer = sse_answer(transcript(api, "text"))
    with server_of(answer, secure=True) as server:
        provider = api.make(server.url, client=HttpClient(environ={}), retry=QUICK)
        [last] = ask(provider)
        error = checked(last)
        server.wait_until_idle()

        assert isinstance(error, LlmConnectionError) and not error.retryable
        assert "certificate" in str(error) and "SSL_CERT_FILE" in str(error)
        assert not server.requests


@pytest.mark.parametrize("api", EACH)
def test_plain_http_where_tls_is_spoken_and_the_other_way_round(api):
    """A wrong scheme is an error of the connection."""
    answer = sse_answer(transcript(api, "text"))
    for secure in (True, False):
        with server_of(answer, secure=secure) as server:
            url = f"{'http' if secure else 'https'}://localhost:{server.port}"
            provider = api.make(url, client=client_of(), connect_timeout_s=0.5)
            assert isinstance(checked(ask(provider)[-1]), LlmError)
            provider.close()


# -- keys --


@pytest.mark.parametrize("api", EACH)
def test_the_key_goes_into_its_header_and_nowhere_else(api, caplog):
    """A request carries the key once, in a header; neither URL, body, repr, log nor copy of the provider shows it."""
    with (
        caplog.at_level(logging.DEBUG),
        ScriptedServer(sse_answer(transcript(api, "text"))) as server,
    ):
        provider = api.make(server.url)
        events = ask(provider)
        provider.close()
    [request] = server.requests
    carrying = [name for name, value in request.headers.items() if KEY in value]

    assert len(carrying) == 1
    assert KEY not in request.target and KEY.encode() not in request.body
    assert KEY not in repr(provider) + repr(events) + caplog.text
    assert KEY not in repr(StreamOptions(get_api_key=lambda _: KEY))


@pytest.mark.parametrize("api", EACH)
def test_a_key_comes_from_the_argument_else_the_hook(api):
    """An argument goes before `get_api_key`, which is asked with the provider's name before each request."""
    asked_for = []
    options = StreamOptions(get_api_key=lambda name: asked_for.append(name) or "hook-key-1234")
    with ScriptedServer(sse_answer(transcript(api, "text"))) as server:
        ask(api.make(server.url, api_key=lambda: "given-key-1234"), options)
        ask(api.make(server.url, api_key=None), options)
        sent = [" ".join(request.headers.values()) for request in server.requests]

    assert "given-key-1234" in sent[0] and "hook-key-1234" not in sent[0]
    assert "hook-key-1234" in sent[1]
    assert asked_for == [api.make("http://x.test").provider]


@pytest.mark.parametrize("api", EACH)
def test_the_key_of_the_environment_goes_to_the_providers_own_server_only(api, monkeypatch):
    """A server that was named by hand gets no key that was set for another."""
    variables = api.provider("the-model").endpoint.key_variables
    for name in variables:
        monkeypatch.setenv(name, KEY)
    with ScriptedServer(sse_answer(transcript(api, "text"))) as server:
        ask(api.make(server.url, api_key=None))
        [request] = server.requests

    assert variables
    assert not any(KEY in value for value in request.headers.values())


@pytest.mark.parametrize("api", EACH)
def test_a_missing_key_names_its_variable(api, monkeypatch):
    """The provider's own server isn't asked without a key, and the error says what to set."""
    endpoint = api.provider("the-model").endpoint
    for name in (*endpoint.key_variables, *endpoint.base_url_variables):
        monkeypatch.delenv(name, raising=False)
    [last] = ask(api.provider("the-model"))

    assert isinstance(last.error, AuthenticationError)
    assert endpoint.key_variables[0] in last.message.error_message


@pytest.mark.parametrize("api", EACH)
@pytest.mark.parametrize(
    "key", ["sk-0123\u2028456789", "sk-0123\n456789", "sk-0123456789\u00fc\u20ac"]
)
def test_a_key_that_cannot_be_sent_is_not_shown(api, key):
    """Characters that no header holds are an error that names the header, and nothing leaves."""
    with ScriptedServer() as server:
        [last] = ask(api.make(server.url, api_key=key))

        assert isinstance(last, ErrorEvent)
        assert "0123" not in repr(last) + last.message.error_message
        assert not server.requests


# -- retries --


@pytest.mark.parametrize("api", EACH)
@pytest.mark.parametrize("broken", [
    HttpAnswer(status=None),
    HttpAnswer(status=None, then="reset"),
    sse_answer(b""),
    sse_answer(b": only a comment\n\n"),
    HttpAnswer(b"x", cut=0, headers=[("Content-Type", "text/event-stream")]),
    refused(503, "busy"),
    refused(429, "slow down"),
], ids=["closed", "reset", "empty", "comment", "cut", "503", "429"])  # fmt: skip
def test_what_may_pass_is_asked_again_before_the_first_content(api, broken):
    """A failure before any content is asked again, with a notice, and with the same body."""
    with asked(api, broken, sse_answer(transcript(api, "text")), retry=QUICK) as (server, events):
        assert [type(event) for event in events].count(StreamNoticeEvent) == 1
        assert events[0].kind == "retry_scheduled"
        assert isinstance(events[-1], DoneEvent)
        assert len({request.body for request in server.requests}) == 1
        assert len(server.requests) == 2


@pytest.mark.parametrize("api", EACH)
@pytest.mark.parametrize("name", ["cut", "error_event"])
def test_nothing_is_asked_again_after_the_first_content(api, name):
    """Half an answer stays half an answer; a second one would be doubled text."""
    with asked(
        api, sse_answer(transcript(api, name)), sse_answer(transcript(api, "text")), retry=QUICK
    ) as (server, events):
        assert isinstance(events[-1], ErrorEvent)
        assert events[-1].message.text == "Half a"
        assert len(server.requests) == 1


@pytest.mark.parametrize("api", EACH)
def test_a_wait_that_is_too_long_fails_at_once(api):
    """A server that asks for a day gets no second request, and the error says how long it asked for."""
    busy = json_answer({"error": {"message": "busy"}}, status=429, headers=[("Retry-After", "86400")])  # fmt: skip
    with asked(api, busy, retry=RetryPolicy()) as (server, events):
        error = checked(events[-1])

        assert error.retry_after_ms == 86_400_000 and "86400 s" in str(error)
        assert len(server.requests) == 1


@pytest.mark.parametrize("api", EACH)
@pytest.mark.parametrize("hook", ["on_payload", "on_response", "get_api_key"])
def test_a_hook_that_raises_ends_the_answer(api, hook, caplog):
    """What a hook raises is an Error event with its traceback in the log, and no key in it."""

    def broken(*_):
        raise ZeroDivisionError("oops")

    with ScriptedServer(sse_answer(transcript(api, "text"))) as server:
        provider = api.make(server.url, api_key=None if hook == "get_api_key" else KEY)
        with caplog.at_level(logging.ERROR):
            last = list(provider(CONTEXT, StreamOptions(**{hook: broken}), AbortSignal()))[-1]
        provider.close()

    assert isinstance(last.error, ZeroDivisionError)
    assert "Traceback" in caplog.text and KEY not in caplog.text
    assert len(server.requests) == (hook == "on_response")


@pytest.mark.parametrize("api", EACH)
def test_hooks_see_and_replace_the_body_and_see_the_response(api):
    """`on_payload` sees the body and may give another; `on_response` sees status and headers."""
    seen = []

    def on_payload(body):
        seen.append(copy.deepcopy(body))
        return {**body, "added": 1}

    options = StreamOptions(
        on_payload=on_payload, on_response=lambda status, headers: seen.append((status, headers["X-A"]))
    )  # fmt: skip
    with ScriptedServer(sse_answer(transcript(api, "text"), headers=[("X-A", "b")])) as server:
        provider = api.make(server.url)
        ask(provider, options)
        ask(provider)
        provider.close()
        bodies = [request.json for request in server.requests]

    assert bodies[0] == {**seen[0], "added": 1}
    assert bodies[1] == seen[0]
    assert seen[1] == (200, "b")
