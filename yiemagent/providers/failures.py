"""What servers of models mean by an error, in whatever shape it comes; the same for every API."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from yiemagent.errors import (
    AuthenticationError,
    BadResponseError,
    ContextOverflowError,
    LlmError,
    RateLimitError,
)
from yiemagent.net.retry import retryable_status
from yiemagent.quoting import Quoting

__all__ = ["error_from_body", "error_from_value", "is_unknown_model", "page_text", "shortened"]

_MAX_TEXT = 4_000
# Patterns stand here as text and are compiled where they are first needed: most programs never meet a failure.
# What is never closed goes up to the end of the page, and no tag goes beyond the next "<": else a page full of either
# would take a time that grows with the square of its size.
_UNSHOWN = r"(?is)<(script|style|title)\b.*?(?:</\1\s*>|\Z)|<!--.*?(?:-->|\Z)"
_TITLE = r"(?i)<title[^<>]*>([^<]*)"
_TAG = r"<[^<>]*>"
_OVERFLOW = (
    r"(?i)context[_ ](length|window|size)|maximum context|max(imum)? (prompt|input) (length|tokens)"
    r"|(prompt|input) (is )?too long|too many (input )?tokens|exceeds? (the (available )?)?context"
    r"|exceeds the maximum number of tokens|exceeded (the )?model token limit"
    r"|token count of \d+ exceeds|range of input length"
    r"|reduce the length of the (messages|prompt)"
)
# Names that a user gave: a tool called context_window says nothing of the context.
_NAMES = r"""(['"`])[\w.:/-]+\1"""
_NO_CREDIT = r"(?i)insufficient_quota|billing|insufficient[ _](credits?|balance|funds)"
_KEY_TROUBLE = r"(?i)authentication|invalid_api_key|api_key_invalid|unauthenticated|permission"
_DURATION = r"(\d{1,9}(?:\.\d{1,9})?)s"
_RATE = r"(?i)rate[_ ]?limit"
_MODEL = r"(?i)\bmodels?\b|model_not_found"
_UNKNOWN_MODEL = (
    r"(?is)\bmodel\b.{0,200}?\b(not (be )?found|not exist|not (a )?valid|not supported|not available|unknown|invalid)\b"
    r"|\b(unknown|invalid|no such|unsupported|not a valid) model\b|model_not_found|\binvalid_model\b"
)
_SERVER_TROUBLE = r"(?i)server_error|internal|overloaded|unavailable|timeout|temporar|try again"


def error_from_body(body: bytes, status: int, retry_after_ms: int | None = None) -> LlmError:
    """Give the error that a response with a failing status means."""
    text = body.decode("utf-8", "replace")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, list) and value:  # some servers wrap it
        value = value[0]
    if isinstance(value, Mapping):
        return error_from_value(value, status, retry_after_ms)
    is_page = text.lstrip().startswith("<")
    said = page_text(text) if is_page else text
    error = error_from_value({"message": said or "nothing"}, status, retry_after_ms)
    if not is_page or status < 500:
        return error
    why = "; that is a page of a proxy or gateway on the way, which may be down or overloaded"
    answered = _answered(status)
    text = Quoting(answered, str(error).removeprefix(answered), why)
    return type(error)(text, status, error.retryable, error.retry_after_ms)


def page_text(page: str) -> str:
    """Give what a web page says, as one line."""
    import html  # a table of all entities, for pages only

    title = re.search(_TITLE, page)
    shown = re.sub(_TAG, " ", re.sub(_UNSHOWN, " ", page))
    words = " ".join(html.unescape(shown).split())
    named = " ".join(html.unescape(title[1]).split()) if title else ""
    return words if words.startswith(named) else f"{named} {words}".strip()


def shortened(text: str, max_chars: int = _MAX_TEXT) -> str:
    """Give a text whole where it fits, else its beginning; the sign of the cut is what `without_secrets` looks for."""
    return text if len(text) <= max_chars else f"{text[:max_chars]}…"


def is_unknown_model(error: LlmError) -> bool:
    """Whether a server refused a request because it knows no model of the name."""
    said = str(error).partition(": ")[2]
    if error.status == 404:
        return re.search(_MODEL, said) is not None
    return error.status in {400, 422} and re.search(_UNKNOWN_MODEL, said) is not None


def error_from_value(
    value: Any, status: int | None = None, retry_after_ms: int | None = None
) -> LlmError:
    """Give the error that JSON means: the value of `error`, or an object that has it.

    Args:
        value: what the server sent.
        status: the HTTP status where that means failure; None takes a status out of the error, if there is one.
        retry_after_ms: how long the server asked to wait.
    """
    inner = value.get("error", value) if isinstance(value, Mapping) else value
    fields: Mapping[str, Any] = inner if isinstance(inner, Mapping) else {"message": inner}
    code, kind = fields.get("code"), _kind(fields)
    if retry_after_ms is None:
        retry_after_ms = _asked_delay_ms(fields)
    status = status or _status(code) or _status(fields.get("status"))
    said = _text(fields, inner)
    words = f"{kind} {code} {said}"
    text = Quoting(_answered(status), said)
    if status not in {401, 403, 429} and re.search(_OVERFLOW, re.sub(_NAMES, "", words)):
        return ContextOverflowError(text, status)
    if status in {401, 403} or re.search(_KEY_TROUBLE, f"{kind} {code}"):
        return AuthenticationError(text, status)
    if status == 402 or re.search(_NO_CREDIT, f"{kind} {code}"):
        return RateLimitError(text, status)
    if status == 429 or re.search(_RATE, f"{kind} {code}"):
        return RateLimitError(text, status, True, retry_after_ms)
    if status is None:
        return BadResponseError(text, None, bool(re.search(_SERVER_TROUBLE, words)), retry_after_ms)
    return LlmError(text, status, retryable_status(status), retry_after_ms)


def _answered(status: int | None) -> str:
    """Give the words that come before the server's."""
    return f"the model's server answered {status}: " if status else "the model's server: "


def _kind(fields: Mapping[str, Any]) -> str:
    """Give the words that stand for the kind of an error; Google's stand in its status and its details."""
    words = [fields.get("type"), fields.get("status")]
    words += [detail.get("reason") for detail in _details(fields)]
    return " ".join([word for word in words if isinstance(word, str)])


def _details(fields: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    details = fields.get("details")
    entries = details if isinstance(details, list) else []
    return [entry for entry in entries if isinstance(entry, Mapping)]


def _asked_delay_ms(fields: Mapping[str, Any]) -> int | None:
    """Read how long Google asks to wait: a `google.rpc.RetryInfo` among the details, such as "22.5s"."""
    for detail in _details(fields):
        if found := re.fullmatch(_DURATION, str(detail.get("retryDelay"))):
            return round(float(found[1]) * 1000)
    return None


def _status(value: Any) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value)
    return value if isinstance(value, int) and 400 <= value < 600 else None


def _text(fields: Mapping[str, Any], whole: Any) -> str:
    message = fields.get("message") or fields.get("detail") or fields.get("error_msg")
    if not message:
        message = whole if isinstance(whole, str) and whole else json.dumps(whole, default=str)
    text = message if isinstance(message, str) else json.dumps(message, default=str)
    raw = fields.get("metadata")
    if isinstance(raw, Mapping) and isinstance(raw.get("raw"), str):  # what stands behind a router
        text = f"{text} ({raw['raw']})"
    return shortened(" ".join(text.split()))
