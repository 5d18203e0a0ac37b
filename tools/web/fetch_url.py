"""Fetch a web page, or another text, and give what it says.

Addresses that are not public are refused, whatever they are called, unless `YIEMAGENT_FETCH_ALLOW` of the environment
names them: hosts, `host:port`, addresses or networks, with commas between. So that the addresses are known, proxies are
not used.
"""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import urlsplit

from yiemagent.abort import AbortSignal
from yiemagent.errors import ConfigurationError, HttpError, ToolError
from yiemagent.net.addresses import guarded
from yiemagent.net.http import HttpClient, HttpResponse
from yiemagent.net.page_text import page_text
from yiemagent.tool import AgentTool, AgentToolResult

__all__ = ["get_tool"]

INPUT_SCHEMA = {
    "type": "object",
    "properties": {
        "url": {"type": "string", "description": "The address, beginning with https:// or http://"},
        "start": {
            "type": "integer",
            "minimum": 0,
            "default": 0,
            "description": "How many characters of the text to pass over, to read on",
        },
        "source": {
            "type": "boolean",
            "default": False,
            "description": "Whether a page is given as its HTML, not as the text that it shows",
        },
    },
    "required": ["url"],
}
EXAMPLES = (
    ("What does https://example.com say?", {"url": "https://example.com"}),
    ("Read on from 20000.", {"url": "https://example.com/long", "start": 20000}),
)
MAX_BYTES = 2_000_000
MAX_CHARS = 20_000
TIMEOUT_S = 30.0
TEXT_TYPE = re.compile(
    r"text/.*|application/((.*\+)?(json|xml)|.*javascript|x?html|.*yaml|toml|x-sh|x-ndjson|sql)"
)
NO_ENCODINGS = {"idna", "punycode", "unicode_escape", "raw_unicode_escape", "undefined"}
HTML_TYPES = {"text/html", "application/xhtml+xml"}


def get_tool(allow: Iterable[str] | None = None) -> AgentTool:
    """Give the tool.

    Args:
        allow: hosts, addresses and networks that are fetched from although they are not public; None: those of the
            environment.
    """
    if allow is None:
        allow = os.environ.get("YIEMAGENT_FETCH_ALLOW", "").replace(",", " ").split()
    environ = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
    client = HttpClient(environ=environ, resolver=guarded(allow))

    def execute(
        tool_call_id: str,
        args: dict[str, Any],
        signal: AbortSignal,
        on_partial_result: Callable[[Any], None],
    ) -> AgentToolResult:
        del tool_call_id, on_partial_result
        return _fetch(client, args, signal)

    return AgentTool(
        name="fetch_url",
        label="Fetch URL",
        description="Fetch a web page or another text from the internet. A long one is given in parts.",
        input_schema=INPUT_SCHEMA,
        execute=execute,
        parallel_tool_execute=True,
        timeout_s=120.0,
        annotations={"readOnlyHint": True, "openWorldHint": True},
        examples=EXAMPLES,
    )


def _fetch(client: HttpClient, args: dict[str, Any], signal: AbortSignal) -> AgentToolResult:
    url, start = _checked(args["url"]), args.get("start", 0)
    try:
        response = client.request(
            "GET",
            url,
            headers={
                "User-Agent": "yiemagent",
                "Accept": "text/html, text/*, application/json, */*;q=0.1",
            },
            signal=signal,
            idle_timeout_s=TIMEOUT_S,
            stream=True,
        )
        with response:
            return _answer(response, start, as_source=args.get("source", False))
    except (HttpError, ConfigurationError) as error:
        raise ToolError(str(error)) from error


def _checked(url: str) -> str:
    try:
        parts = urlsplit(url.strip())
        host = parts.hostname
    except ValueError as error:
        raise ToolError(f"{url!r} is no address: {error}") from error
    if parts.scheme not in {"http", "https"} or not host:
        raise ToolError(f"{url!r} is no address that begins with https:// or http://")
    if parts.username or parts.password:
        raise ToolError("an address with a user name or a password in it is not fetched")
    return url.strip()


def _answer(response: HttpResponse, start: int, *, as_source: bool) -> AgentToolResult:
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if 300 <= response.status < 400:
        target = response.headers.get("location", "nowhere")
        raise ToolError(f"{response.url} redirects to {target[:500]}, which is not followed")
    if kind and not TEXT_TYPE.fullmatch(kind):
        raise ToolError(f"{response.url} is {kind}; only text is read")
    data, is_whole = _read(response)
    if b"\0" in data[:1024]:
        raise ToolError(f"{response.url} is no text")
    text = _decoded(response, data)
    if kind in HTML_TYPES and not as_source:
        text = page_text(text, response.url)
    if response.status >= 400:
        raise ToolError(
            f"{response.url} answered {response.status}: {' '.join(text[:800].split())}"
        )
    if start and start >= len(text):
        raise ToolError(f"the text has {len(text)} characters; there is none at {start}")
    shown = text[start : start + MAX_CHARS] or "(the page is empty)"
    if start + MAX_CHARS < len(text):
        shown += f"\n[characters {start} to {start + MAX_CHARS} of {len(text)}; go on with start={start + MAX_CHARS}]"
    if not is_whole:
        shown += f"\n[what is behind the first {MAX_BYTES} bytes was not read]"
    details = {"url": response.url, "status": response.status, "type": kind, "chars": len(text)}
    return AgentToolResult(shown, details=details)


def _read(response: HttpResponse) -> tuple[bytes, bool]:
    """Give the body up to the limit, and whether that is all of it; all within the time limit."""
    pieces, size = [], 0
    for piece in response.iter_bytes(only_noted_progress=True):
        pieces.append(piece)
        size += len(piece)
        if size > MAX_BYTES:
            return b"".join(pieces)[:MAX_BYTES], False
    return b"".join(pieces), True


def _decoded(response: HttpResponse, data: bytes) -> str:
    """Read the body in the encoding that the server or the page names, where it is one; else as UTF-8."""
    header = re.search(r"charset=[\"']?([\w.:-]+)", response.headers.get("content-type", ""))
    meta = re.search(rb"<meta[^>]{0,200}?charset=[\"']?([\w.:-]+)", data[:4096], re.IGNORECASE)
    name = header[1] if header else (meta[1].decode() if meta else "utf-8")
    try:
        if codecs.lookup(name).name.replace("-", "_") not in NO_ENCODINGS:
            return data.decode(name, "replace")
    except (LookupError, UnicodeError):  # unknown, or none of text
        pass
    return data.decode("utf-8", "replace")
