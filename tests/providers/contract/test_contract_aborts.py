"""Every provider, held wherever a request may wait: an abort ends the wait, and a limit ends what nobody aborts."""

from __future__ import annotations

import time

import pytest

from tests.providers.contract.apis import APIS, transcript
from tests.providers.contract.asking import AgentAsking, Asking, ask, check_stream
from tests.providers.contract.stalls import STALLS, client_of, server_of
from yiemagent.abort import AbortSignal
from yiemagent.errors import AbortedError, LlmConnectionError
from yiemagent.testing import HttpAnswer, sse_answer

SOON_S = 1.0  # 0.1 s is the promise, held by benchmarks/abort.py; the rest is for a busy machine
EACH = [pytest.param(api, id=api.name) for api in APIS]
MID_STREAM = {"between_events", "inside_an_event"}
SECURE = [pytest.param(False, id="http"), pytest.param(True, id="https")]


@pytest.mark.parametrize("api", EACH)
@pytest.mark.parametrize("secure", SECURE)
@pytest.mark.parametrize("place", STALLS)
def test_an_abort_ends_every_wait(api, secure, place):
    """Wherever a request waits, the aborted answer is there at once, with the reason, and what came is in it."""
    with STALLS[place](api, secure, Asking) as asking:
        message = asking.abort()

    check_stream(asking.events)
    assert asking.ended_at - asking.aborted_at < SOON_S
    assert (message.stop_reason, message.error_message) == ("aborted", "aborted: enough")
    assert isinstance(asking.events[-1].error, AbortedError)
    assert message.text == ("Half a" if place in MID_STREAM else "")


@pytest.mark.parametrize("api", EACH)
@pytest.mark.parametrize("place", STALLS)
def test_abort_agent_ends_every_wait(api, place):
    """`abort_agent` has the aborted answer delivered at once, wherever the agent's request waits."""
    with STALLS[place](api, False, AgentAsking) as asking:
        message = asking.abort()

    assert asking.ended_at - asking.aborted_at < SOON_S
    assert message.stop_reason == "aborted" and "enough" in message.error_message
    assert message.text == ("Half a" if place in MID_STREAM else "")


@pytest.mark.parametrize("api", EACH)
def test_a_signal_that_is_set_already_asks_nobody(api):
    """With an aborted signal nothing is sent."""
    signal = AbortSignal()
    signal.abort("enough")
    with server_of(sse_answer(transcript(api, "text")), secure=False) as server:
        [last] = ask(api.make(server.url), signal=signal)

        assert last.message.stop_reason == "aborted"
        assert not server.requests and not server.connections


@pytest.mark.parametrize("api", EACH)
def test_a_late_abort_changes_nothing(api):
    """An abort behind the end of an answer hits neither the answer nor the next request on the kept connection."""
    signal = AbortSignal()
    answer = sse_answer(transcript(api, "text"), chunked=True, then="keep")
    with server_of(answer, secure=False) as server:
        provider = api.make(server.url)
        first = ask(provider, signal=signal)[-1].message
        signal.abort()
        second = ask(provider)[-1].message
        provider.close()

        assert (first.text, first.stop_reason) == (second.text, second.stop_reason)
        assert {request.connection for request in server.requests} == {1}


# -- limits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("api", EACH)
@pytest.mark.parametrize("secure", SECURE)
@pytest.mark.parametrize("noise", ["comments", "pings", "bytes of an event", "nothing"])
def test_keep_alives_do_not_lengthen_the_idle_limit(api, secure, noise):
    """However busy a server keeps the connection, without new content the answer ends at its limit, and says so."""
    rests = {
        "comments": b": keep-alive\n\n",
        "pings": api.keep_alive,
        "bytes of an event": b"x",
        "nothing": b"",
    }
    steps = [transcript(api, "cut"), *[step for _ in range(200) for step in (0.02, rests[noise])]]
    with server_of(sse_answer(steps, then="hang"), secure=secure) as server:
        provider = api.make(server.url, idle_timeout_s=0.3, client=client_of())
        began = time.monotonic()
        last = ask(provider)[-1]
        took_s = time.monotonic() - began
        provider.close()

    assert isinstance(last.error, LlmConnectionError)
    assert "sent nothing new for 0.3 s" in last.message.error_message
    assert last.message.text == "Half a"
    assert 0.3 <= took_s < 0.3 + SOON_S


@pytest.mark.parametrize("api", EACH)
def test_content_lengthens_the_idle_limit(api):
    """An answer that goes on may take as long as it likes, in pieces however small."""
    body = transcript(api, "text")
    events = [b"%b\n\n" % event for event in body.replace(b"\r\n", b"\n").split(b"\n\n") if event]
    steps = [step for event in events for step in (event, 0.9 / len(events))]
    with server_of(sse_answer(steps), secure=False) as server:
        provider = api.make(server.url, idle_timeout_s=0.7)
        began = time.monotonic()
        last = ask(provider)[-1]
        provider.close()

    assert last.message.stop_reason == "stop", last.message.error_message
    assert time.monotonic() - began > 0.7


@pytest.mark.parametrize("api", EACH)
@pytest.mark.parametrize("secure", SECURE)
def test_a_server_that_never_answers_meets_the_idle_limit(api, secure):
    """Headers that don't come end the request at its limit."""
    with server_of(HttpAnswer(status=None, then="hang"), secure=secure) as server:
        provider = api.make(server.url, idle_timeout_s=0.2, client=client_of())
        [last] = ask(provider)

        assert isinstance(last.error, LlmConnectionError) and last.error.retryable
        assert "sent nothing new for 0.2 s" in last.message.error_message


@pytest.mark.parametrize("api", EACH)
def test_a_handshake_that_stalls_meets_the_connect_limit(api):
    """TLS that never begins ends at the limit for the connection."""
    with server_of(secure=True, on_connect="stall") as server:
        provider = api.make(server.url, connect_timeout_s=0.2, client=client_of())
        [last] = ask(provider)

        assert isinstance(last.error, LlmConnectionError) and last.error.retryable
        assert "within 0.2 s" in last.message.error_message
