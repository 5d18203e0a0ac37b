"""Whether and when to ask a server again: the one place that decides it, and no I/O.

Who asks keeps the loop, so that each wait can be an event and ends with the abort signal: after a failure it takes
`RetryPolicy.decide`, and on a `Retry` waits on the signal for `delay_ms`.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import attrs

from yiemagent.errors import LlmError
from yiemagent.record import Record

__all__ = [
    "GiveUp",
    "Retry",
    "RetryPolicy",
    "parse_retry_after",
    "parse_should_retry",
    "retryable_status",
]

_NUMBER = re.compile(r"\d{1,15}(\.\d+)?")


def retryable_status(status: int) -> bool:
    """Whether an answer with this HTTP status may come out better when it is asked for again."""
    return status in {408, 409, 429} or status >= 500


def parse_retry_after(headers: Mapping[str, str], now: datetime) -> int | None:
    """Read how long a server asks to wait: `retry-after-ms`, or `Retry-After` as seconds or a date (RFC 9110, 10.2.3).

    Args:
        headers: the response's headers; the case of their names does not matter.
        now: the present, with its time zone.

    Returns:
        Milliseconds, 0 for a date that has passed; None where nothing is asked or what is asked makes no sense.
    """
    lowered = {name.lower(): value.strip() for name, value in headers.items()}
    if _NUMBER.fullmatch(milliseconds := lowered.get("retry-after-ms", "")):
        return round(float(milliseconds))
    value = lowered.get("retry-after", "")
    if _NUMBER.fullmatch(value):
        return round(float(value) * 1000)
    try:
        date = parsedate_to_datetime(value)
    except (ValueError, OverflowError):  # no date, or one beyond what a clock can hold
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)  # HTTP dates are in UTC, whether they say so or not
    return max(0, round((date - now).total_seconds() * 1000))


def parse_should_retry(headers: Mapping[str, str]) -> bool | None:
    """Read whether a server says that asking again may help; None where it says nothing.

    OpenAI's and Anthropic's servers send `x-should-retry`, which goes before what the status means.
    """
    lowered = {name.lower(): value.strip().lower() for name, value in headers.items()}
    return {"true": True, "false": False}.get(lowered.get("x-should-retry", ""))


@attrs.frozen(eq=False, repr=False)
class Retry(Record):
    """Ask again: this will be retry number `attempt` (1 for the first), after `delay_ms`."""

    attempt: int
    delay_ms: int


@attrs.frozen(eq=False, repr=False)
class GiveUp(Record):
    """Do not ask again; `reason` adds to the error why, or is empty where the error says all."""

    reason: str = ""


@attrs.frozen(kw_only=True, eq=False, repr=False)
class RetryPolicy(Record):
    """How often and how patiently to ask again.

    Args:
        max_retries: how many requests may follow the first; 0 turns retries off.
        base_delay_ms: about the wait before the first retry; each further one doubles it.
        max_backoff_ms: the longest wait of ours where the server names none.
        max_delay_ms: the longest wait that a server may ask for; above it the request fails at once. None: no limit.
        chance: gives numbers from 0 to 1, by which a wait is shortened by up to a half, so that clients spread out.
    """

    max_retries: int = 3
    base_delay_ms: int = 500
    max_backoff_ms: int = 8_000
    max_delay_ms: int | None = 60_000
    chance: Callable[[], float] = random.random

    def decide(self, error: LlmError, retries: int) -> Retry | GiveUp:
        """Decide what follows on `error`, when `retries` have been made already."""
        if not error.retryable:
            return GiveUp()
        asked_ms = error.retry_after_ms
        if asked_ms is not None and self.max_delay_ms is not None and asked_ms > self.max_delay_ms:
            asked, limit = asked_ms / 1000, self.max_delay_ms / 1000
            return GiveUp(
                f"the server asks to wait {asked:.15g} s, more than the limit of {limit:.15g} s"
            )
        if retries >= self.max_retries:
            return GiveUp(f"gave up after {retries + 1} requests" if retries else "")
        if asked_ms is None:
            backoff_ms = min(self.base_delay_ms * 2.0 ** min(retries, 60), self.max_backoff_ms)
            asked_ms = round(backoff_ms * (1 - self.chance() / 2))
        return Retry(retries + 1, asked_ms)
