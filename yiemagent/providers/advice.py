"""What a person can check when a request to a model fails for good."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import attrs

from yiemagent.errors import AuthenticationError, LlmConnectionError, LlmError
from yiemagent.net.exchange import origin_of
from yiemagent.providers.failures import is_unknown_model
from yiemagent.quoting import Quoting
from yiemagent.record import Record

__all__ = ["Asked", "advised", "without_secrets"]

_NO_ENDPOINT = re.compile(r"unexpected endpoint", re.IGNORECASE)  # LM Studio, with status 200
_LEAST_SECRET = (
    8  # characters; what is shorter is no key, and what is left of a key tells too little of it
)


@attrs.frozen(eq=False, repr=False)
class Asked(Record):
    """What was asked of whom, for texts.

    Args:
        base_url: where the API is; model: the model that was asked.
        key_source: where the key came from, in words; None: none was sent.
        key_variables: environment variables that may hold the provider's key.
    """

    base_url: str
    model: str
    key_source: str | None
    key_variables: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        """The base URL without what may be secret in it."""
        return f"{origin_of(self.base_url)}{urlsplit(self.base_url).path}"


def advised(error: LlmError, asked: Asked) -> LlmError:
    """Give an error whose text, still one line, ends with what to check, where that is known."""
    advice = _advice(error, asked)
    return _like(error, f"{error}; {advice}") if advice else error


def _advice(error: LlmError, asked: Asked) -> str:
    if isinstance(error, AuthenticationError):
        return _about_the_key(asked) if error.status is not None else ""
    if is_unknown_model(error):
        return f"check the model's name, {asked.model!r}"
    if error.status is not None and 300 <= error.status < 400:
        return f"check base_url, {asked.address!r}"
    if error.status in {404, 405} or _NO_ENDPOINT.search(str(error)):
        return f"check base_url, {asked.address!r}: the API's path is put behind it"
    if isinstance(error, LlmConnectionError) and str(error).startswith("no connection to"):
        return f"check base_url, {asked.address!r}, and that the server is running"
    return ""


def _about_the_key(asked: Asked) -> str:
    if asked.key_source is not None:
        return f"check the key ({asked.key_source}) and what it may do"
    advice = "no key was sent; give one as api_key"
    if asked.key_variables:
        names = " or ".join(asked.key_variables)
        advice += f" ({names} is sent only to the provider's own server)"
    return advice


def without_secrets(error: LlmError, secrets: tuple[str, ...]) -> LlmError:
    """Give an error in which nobody is quoted with a secret, which some servers repeat.

    Only what somebody else said is looked at: our own words repeat none, and stay whole whatever the key is. A secret
    of less than 8 characters is none, such as the "x" or "none" that servers on one's own machine are given, and stays.
    """
    text = error.args[0]
    if not isinstance(text, Quoting):
        return error
    said = text.said
    for secret in secrets:
        if len(secret) >= _LEAST_SECRET:
            said = _without_cut(said.replace(secret, "…"), secret)
    return error if said == text.said else _like(error, f"{text.before}{said}{text.after}")


def _without_cut(text: str, secret: str) -> str:
    """Give text without the beginning of a secret where a part of the text was cut; more words may follow there."""
    for size in range(len(secret) - 1, _LEAST_SECRET - 1, -1):
        text = text.replace(f"{secret[:size]}…", "…")
    return text


def _like(error: LlmError, text: str) -> LlmError:
    return type(error)(text, error.status, error.retryable, error.retry_after_ms)
