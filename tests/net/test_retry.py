"""When to ask again."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yiemagent.errors import LlmError, RateLimitError
from yiemagent.net.retry import (
    GiveUp,
    Retry,
    RetryPolicy,
    parse_retry_after,
    parse_should_retry,
    retryable_status,
)

NOW = datetime(1994, 11, 6, 8, 49, 34, tzinfo=UTC)
FAILED = LlmError("no", 503, True)


@pytest.mark.parametrize(
    "headers, expected",
    [
        ({"Retry-After": "2"}, 2000),
        ({"retry-after": "0.5"}, 500),
        ({"RETRY-AFTER": " 0 "}, 0),
        ({"retry-after": "86400"}, 86_400_000),
        ({"retry-after-ms": "1500"}, 1500),
        ({"retry-after-ms": "1500.5", "retry-after": "9"}, 1500),
        ({"retry-after-ms": "soon", "retry-after": "9"}, 9000),
        ({"retry-after": "Sun, 06 Nov 1994 08:49:37 GMT"}, 3000),
        ({"retry-after": "Sunday, 06-Nov-94 08:49:37 GMT"}, 3000),
        ({"retry-after": "Sun Nov  6 08:49:37 1994"}, 3000),
        ({"retry-after": "Sun, 06 Nov 1994 08:49:37"}, 3000),
        ({"retry-after": "Sun, 06 Nov 1994 08:39:37 GMT"}, 0),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "1e400"}, None),
        ({"retry-after": "9" * 400}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "Sun, 99 Nov 1994 08:49:37 GMT"}, None),
        ({"retry-after": f"Sun, 06 Nov {'9' * 30} 08:49:37 GMT"}, None),
        ({}, None),
    ],
)
def test_parse_retry_after(headers, expected):
    """Seconds, milliseconds and the three forms of an HTTP date are read; nonsense is nothing."""
    assert parse_retry_after(headers, NOW) == expected


@given(st.text())
def test_parse_retry_after_never_raises(text):
    """Whatever a server sends, the answer is a wait or None."""
    wait = parse_retry_after({"Retry-After": text, "retry-after-ms": text}, NOW)

    assert wait is None or wait >= 0


@pytest.mark.parametrize(
    "headers, expected",
    [
        ({"X-Should-Retry": "true"}, True),
        ({"x-should-retry": " False "}, False),
        ({"x-should-retry": "maybe"}, None),
        ({}, None),
    ],
)
def test_parse_should_retry(headers, expected):
    """A server may say itself whether asking again helps; anything else says nothing."""
    assert parse_should_retry(headers) is expected


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
def test_retryable_status(status):
    """Time-outs, conflicts, rate limits and server errors may be asked again."""
    assert retryable_status(status)


@pytest.mark.parametrize("status", [200, 301, 400, 401, 403, 404, 413, 422])
def test_other_status(status):
    """What the request itself got wrong isn't asked again."""
    assert not retryable_status(status)


def test_backoff_doubles_up_to_its_limit():
    """Waits double from the base to the limit, shortened by chance by half at most."""
    longest = RetryPolicy(max_retries=10_000, chance=lambda: 0.0)
    shortest = RetryPolicy(max_retries=10_000, chance=lambda: 1.0)

    assert [longest.decide(FAILED, n) for n in (0, 1, 2, 4, 5, 9_999)] == [
        Retry(1, 500),
        Retry(2, 1000),
        Retry(3, 2000),
        Retry(5, 8000),
        Retry(6, 8000),
        Retry(10_000, 8000),
    ]
    assert shortest.decide(FAILED, 1) == Retry(2, 500)


def test_the_wait_asked_for_is_kept():
    """A wait that the server names is neither shortened nor lengthened, and 0 is a wait."""
    policy = RetryPolicy(chance=lambda: 1.0)

    assert policy.decide(RateLimitError("slow", 429, True, 2000), 0) == Retry(1, 2000)
    assert policy.decide(RateLimitError("slow", 429, True, 0), 0) == Retry(1, 0)


def test_too_long_a_wait_fails_at_once():
    """A wait above the limit is no retry, and the reason says how long the server asked for."""
    error = RateLimitError("slow", 429, True, 86_400_000)

    assert RetryPolicy().decide(error, 0) == GiveUp(
        "the server asks to wait 86400 s, more than the limit of 60 s"
    )
    assert RetryPolicy(max_delay_ms=None).decide(error, 0) == Retry(1, 86_400_000)


def test_retries_are_counted():
    """After the last retry, and after an error that asking again can't help, it is over."""
    policy = RetryPolicy(max_retries=2)

    assert isinstance(policy.decide(FAILED, 1), Retry)
    assert policy.decide(FAILED, 2) == GiveUp("gave up after 3 requests")
    assert RetryPolicy(max_retries=0).decide(FAILED, 0) == GiveUp()
    assert policy.decide(LlmError("bad request", 400), 0) == GiveUp()
