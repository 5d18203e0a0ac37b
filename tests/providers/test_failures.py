"""What errors of servers mean."""

import json

import pytest

from yiemagent.errors import (
    AuthenticationError,
    BadResponseError,
    ContextOverflowError,
    LlmError,
    RateLimitError,
)
from yiemagent.providers.failures import error_from_body, error_from_value, is_unknown_model

PROXY_PAGE = b"""<!DOCTYPE html>
<html><head><title>502 &amp; Co</title><style>b {}</style></head>
<body><script>x()</script><!-- no --><h1>502 &amp; Co</h1><p>nginx</p></body></html>"""


def openai(message, kind=None, code=None):
    return json.dumps({"error": {"message": message, "type": kind, "code": code}}).encode()


@pytest.mark.parametrize(
    "body, status, expected, retryable",
    [
        (openai("bad field"), 400, LlmError, False),
        (openai("Incorrect API key", code="invalid_api_key"), 401, AuthenticationError, False),
        (openai("no access"), 403, AuthenticationError, False),
        (openai("no such model"), 404, LlmError, False),
        (openai("slow down"), 429, RateLimitError, True),
        (openai("pay first", "insufficient_quota"), 429, RateLimitError, False),
        (openai("Insufficient Balance"), 402, RateLimitError, False),
        (openai("sorry"), 500, LlmError, True),
        (openai("busy"), 529, LlmError, True),
        (openai("timed out"), 408, LlmError, True),
        (openai("This model's maximum context length is 8192 tokens", code="context_length_exceeded"), 400,
         ContextOverflowError, False),
        (openai("request (6009 tokens) exceeds the available context size (4096 tokens)"), 400,
         ContextOverflowError, False),
        (openai("x", "exceed_context_size_error"), 400, ContextOverflowError, False),
        (openai("the prompt is too long"), 413, ContextOverflowError, False),
        (openai("maximum context reached, slow down"), 429, RateLimitError, True),
    ],
)  # fmt: skip
def test_status(body, status, expected, retryable):
    """Status and words give the error's class, and whether asking again may help."""
    error = error_from_body(body, status, 1500)

    assert type(error) is expected
    assert (error.status, error.retryable) == (status, retryable)
    assert json.loads(body)["error"]["message"] in str(error)
    assert f"answered {status}" in str(error)
    if retryable:
        assert error.retry_after_ms == 1500


@pytest.mark.parametrize(
    ("text", "overflows"),
    [
        ("This model's maximum context length is 8192 tokens. However, it's more.", True),
        ("prompt is too long: 210321 tokens > 200000 maximum", True),
        ("input length and `max_tokens` exceed context limit: 199000 + 20000 > 200000", True),
        ("Your input exceeds the context window of this model.", True),
        ("Context size has been exceeded.", True),
        ("Range of input length should be [1, 202745]", True),
        ("Invalid request: Your request exceeded model token limit: 131072", True),
        ("prompt token count of 140000 exceeds the limit of 128000", True),
        ("prompt too long; exceeded max context length by 12 tokens", True),
        ("Trying to keep the first 5000 tokens when context the overflows, with a context length of 4096", True),
        ("context deadline exceeded", False),
        ("max_tokens is too large: 99999. This model supports at most 8192 completion tokens.", False),
        ("Invalid schema for function 'context_window': object schema missing properties.", False),
        ('unknown field "context_length"', False),
        ("tool `context_size` is not defined", False),
    ],
)  # fmt: skip
def test_overflow(text, overflows):
    """A context that is too long is known by what servers say of it, and not by names that a user gave."""
    error = error_from_body(openai(text), 400)

    assert isinstance(error, ContextOverflowError) is overflows


@pytest.mark.parametrize(
    "body, text",
    [
        (b'{"error": "plain words"}', "plain words"),
        (b'{"message": "at the top"}', "at the top"),
        (b'{"detail": [{"msg": "field required"}]}', "field required"),
        (b'[{"error": {"message": "in a list"}}]', "in a list"),
        (
            b"<html><body><h1>502 Bad\n Gateway</h1></body></html>",
            "502 Bad Gateway; that is a page of a proxy",
        ),
        (PROXY_PAGE, "answered 502: 502 & Co nginx; that"),
        (
            b"<html><head><title>Down</title></head><body>for a while</body></html>",
            "answered 502: Down for a while;",
        ),
        (b"<html><head><title>Down</title><body>for a while", "answered 502: Down for a while;"),
        (b"<html>busy <!-- for ", "answered 502: busy;"),
        (b'{"error": {"message": "two\\nlines"}}', "two lines"),
        (
            b'{"error": {"message": "Provider returned error", "metadata": {"raw": "the real one"}}}',
            "Provider returned error (the real one)",
        ),
        (b'"just text"', "just text"),
        (b"", "answered 502: nothing"),
        (b"\xff", "answered 502"),
        (b"[" * 100_000, "answered 502"),
        (b"x" * 10_000, "…"),
    ],
)
def test_shapes(body, text):
    """The words are found in whatever shape the error has, and kept to a length."""
    error = error_from_body(body, 502)

    assert text in str(error)
    assert len(str(error)) < 4_100
    assert "\n" not in str(error)


@pytest.mark.time_limit(5)
@pytest.mark.parametrize("piece", [b"<!--", b"<style>", b"<script <", b"<title>", b"<title", b"<"])
def test_a_page_that_closes_nothing(piece):
    """Reading a page takes a time that grows with its size, not with the square of it."""
    error = error_from_body(b"<p>busy" + piece * (1_000_000 // len(piece)), 502)

    assert "answered 502: busy" in str(error)


@pytest.mark.parametrize(
    "value, expected, status, retryable",
    [
        ({"error": {"message": "m", "code": 502}}, LlmError, 502, True),
        ({"error": {"message": "m", "code": "400"}}, LlmError, 400, False),
        ({"error": {"message": "m", "status": 503}}, LlmError, 503, True),
        ({"error": {"message": "m", "type": "server_error"}}, BadResponseError, None, True),
        ({"error": {"message": "Overloaded"}}, BadResponseError, None, True),
        ({"error": {"message": "m", "type": "insufficient_quota"}}, RateLimitError, None, False),
        ({"error": {"message": "m", "type": "rate_limit_error"}}, RateLimitError, None, True),
        ({"error": {"message": "m", "type": "authentication_error"}}, AuthenticationError, None, False),
        ({"error": {"message": "m", "code": 1234}}, BadResponseError, None, False),
        ({"error": "m"}, BadResponseError, None, False),
        ("m", BadResponseError, None, False),
    ],
)  # fmt: skip
def test_in_a_good_response(value, expected, status, retryable):
    """An error under a good status is judged by its own code and words."""
    error = error_from_value(value)

    assert type(error) is expected
    assert (error.status, error.retryable) == (status, retryable)
    assert "m" in str(error)


def google(code, status, message, *details):
    error = {"code": code, "message": message, "status": status, "details": list(details)}
    return json.dumps({"error": error}).encode()


def retry_info(delay):
    return {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}


@pytest.mark.parametrize(
    "body, status, expected, retryable, delay_ms",
    [
        (google(429, "RESOURCE_EXHAUSTED", "m", {"@type": "x"}, retry_info("22s")), 429, RateLimitError, True, 22_000),
        (google(503, "UNAVAILABLE", "m", retry_info("0.25s")), 503, LlmError, True, 250),
        (google(429, "RESOURCE_EXHAUSTED", "m", retry_info("soon"), "y", None), 429, RateLimitError, True, None),
        (google(400, "INVALID_ARGUMENT", "m", {"reason": "API_KEY_INVALID"}), 400, AuthenticationError, False, None),
        (google(403, "PERMISSION_DENIED", "m"), 403, AuthenticationError, False, None),
        (google(400, "INVALID_ARGUMENT", "m"), 400, LlmError, False, None),
        (google(400, "INVALID_ARGUMENT", "The input token count (1200000) exceeds the maximum number of tokens "
                "allowed (1048576)."), 400, ContextOverflowError, False, None),
    ],
)  # fmt: skip
def test_google(body, status, expected, retryable, delay_ms):
    """Google's errors say in status and details what they are and how long to wait."""
    for error in (error_from_body(body, status), error_from_value(json.loads(body))):
        assert type(error) is expected
        assert (error.status, error.retryable) == (status, retryable)
        assert error.retry_after_ms == delay_ms


def test_a_header_goes_before_the_details():
    """How long to wait is what the header says, where there is one."""
    body = google(429, "RESOURCE_EXHAUSTED", "m", retry_info("22s"))

    assert error_from_body(body, 429, 1000).retry_after_ms == 1000


@pytest.mark.parametrize(
    "status, said, expected",
    [
        (404, "The model `gpt-9` does not exist or you do not have access to it.", True),
        (404, 'model "x" not found, try pulling it first', True),
        (404, "model: claude-9", True),
        (404, "models/gemini-9 is not found for API version v1beta", True),
        (404, "File Not Found", False),
        (404, "Not Found", False),
        (400, "x is not a valid model ID", True),
        (400, "Invalid model: x", True),
        (400, "model not supported", True),
        (400, "temperature is not supported", False),
        (400, "messages: field required", False),
        (401, "no such model", False),
        (None, "no such model", False),
    ],
)
def test_unknown_model(status, said, expected):
    """A server that knows no such model says so in words; a path that is not there says nothing of a model."""
    assert is_unknown_model(error_from_value({"message": said}, status)) == expected
