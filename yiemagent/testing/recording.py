"""Writing down what a model answered, and answering from that: tests that need a model once and never again.

A recording is a JSONL file: a line that says what it is, then a line for each request with the events of its answer.
Both sides stand at the one port to models, so any provider can be recorded, and nothing of the wire is in the file.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from yiemagent import codec
from yiemagent.abort import AbortSignal
from yiemagent.context import LlmContext
from yiemagent.errors import BadResponseError, ConfigurationError, InvalidJson
from yiemagent.llm import StreamFn, StreamOptions, stream_fn_of
from yiemagent.messages import AssistantMessage
from yiemagent.streaming import DoneEvent, ErrorEvent, StreamEvent
from yiemagent.testing.comparison import difference, request_json
from yiemagent.testing.secrets import SecretRemover, secrets_of_environment

__all__ = ["Recorder", "Replay", "record", "replay"]

VERSION = 1


def record(model: Any, path: str | Path, *, secrets: Iterable[str] = ()) -> Recorder:
    """Give a model that asks `model` and writes each request and its answer to `path`, for `replay`.

    Removed from the file are: the key that a provider was given as `api_key` (not one that a function gives) and what
    its headers carry, what `get_api_key` gives, the values of environment variables that are named like a key, fields
    and headers that are (`api_key`, `authorization`, `password`, …), texts that look like a key, and `secrets`.

    Args:
        model: whatever an agent takes as its model: a provider, a `StreamFn`, a function, a model string.
        path: the file, begun anew.
        secrets: more values to remove.
    """
    return Recorder(stream_fn_of(model), Path(path), secrets)


def replay(path: str | Path) -> Replay:
    """Give a model that answers from a recording, without asking anybody.

    Each request gets the events of the first recorded one that says the same and is not used yet, so agents in several
    threads find their own. Compared is what a model sees: instructions, messages, tools and what was asked of it, not
    times, usage and ids of calls.

    Raises:
        ConfigurationError: the file is no recording; the text names path and line.
    """
    return Replay(Path(path))


class Recorder:
    """A `StreamFn` that writes down what another one is asked and answers; made by `record`. Safe to share."""

    is_stream_fn = True

    def __init__(self, stream_fn: StreamFn, path: Path, secrets: Iterable[str]) -> None:
        self.native_output: bool = bool(getattr(stream_fn, "native_output", False))
        self._stream_fn = stream_fn
        self._path = path
        # Guards the file and the set; held while a line is appended, and for no code of a user.
        self._lock = threading.Lock()
        self._secrets = {*secrets} | secrets_of_environment()
        known = getattr(stream_fn, "secrets", None)
        if callable(known):
            self._secrets |= known()
        self._write({"recording": VERSION, "native_output": self.native_output}, mode="w")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._path)!r})"

    def __call__(
        self, context: LlmContext, options: StreamOptions, signal: AbortSignal, /
    ) -> Iterator[StreamEvent]:
        """Stream the model's answer; it is in the file when its last event is given."""
        if options.get_api_key is not None:
            options = attrs.evolve(options, get_api_key=self._overheard(options.get_api_key))
        events: list[StreamEvent] = []
        for event in self._stream_fn(context, options, signal):
            events.append(event)
            if isinstance(event, (DoneEvent, ErrorEvent)):
                self._keep(request_json(context, options), events)
            yield event

    def _overheard(self, get_api_key: Callable[[str], str | None]) -> Callable[[str], str | None]:
        def get(provider: str) -> str | None:
            key = get_api_key(provider)
            if key:
                with self._lock:
                    self._secrets |= {key, key.strip()}
            return key

        return get

    def _keep(self, request: dict[str, Any], events: list[StreamEvent]) -> None:
        written = [_event_json(event) for event in events]
        with self._lock:
            remover = SecretRemover(self._secrets)
        line = {"request": remover.value(request), "events": remover.events(written)}
        self._write(line, mode="a")

    def _write(self, line: dict[str, Any], *, mode: str) -> None:
        text = json.dumps(line, separators=(",", ":"), allow_nan=False) + "\n"
        with self._lock, self._path.open(mode, encoding="utf-8") as file:
            file.write(text)


def _event_json(event: StreamEvent) -> dict[str, Any]:
    written = codec.to_json(event)
    del written["v"]
    return written


class Replay:
    """A `StreamFn` that answers from a recording; made by `replay`. Safe to share."""

    is_stream_fn = True

    def __init__(self, path: Path) -> None:
        self._path = path
        header, self._exchanges = _load(path)
        self.native_output: bool = bool(header.get("native_output"))
        # Guards the list of what is not used yet. Comparing, which is pure, happens under it: no two requests get one.
        self._lock = threading.Lock()
        self._unused = list(self._exchanges)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._path)!r}, unused={self.unused})"

    @property
    def unused(self) -> int:
        """How many recorded answers were not asked for yet."""
        return len(self._unused)

    def __call__(
        self, context: LlmContext, options: StreamOptions, signal: AbortSignal, /
    ) -> Iterator[StreamEvent]:
        """Stream the recorded answer; a request that was not recorded gets an error that names the difference."""
        exchange = self._take(request_json(context, options))
        if isinstance(exchange, str):
            failure = BadResponseError(exchange)
            yield ErrorEvent(AssistantMessage(stop_reason="error", error_message=exchange), failure)
            return
        for event in exchange.events:
            if signal.aborted:
                yield ErrorEvent(_aborted(signal))
                return
            yield event

    def _take(self, request: dict[str, Any]) -> _Exchange | str:
        with self._lock:
            for exchange in self._unused:
                if difference(exchange.request, request) is None:
                    self._unused.remove(exchange)
                    return exchange
            following = self._unused[0] if self._unused else None
        if following is None:
            return f"{self._path} has {len(self._exchanges)} answers, and all were given already"
        found = difference(following.request, request)
        return f"the request is not the one in {self._path}, line {following.line}: {found}"


@attrs.frozen(eq=False)
class _Exchange:
    line: int
    request: Mapping[str, Any]
    events: tuple[StreamEvent, ...]


def _aborted(signal: AbortSignal) -> AssistantMessage:
    return AssistantMessage(stop_reason="aborted", error_message=signal.why)


def _load(path: Path) -> tuple[Mapping[str, Any], list[_Exchange]]:
    header: Mapping[str, Any] = {}
    exchanges: list[_Exchange] = []
    lines = path.read_bytes().splitlines()
    for number, text in enumerate(lines or [b""], 1):
        try:
            line = json.loads(text)
            if number == 1:
                header = _header(line)
                continue
            events = tuple([codec.from_json(event) for event in line["events"]])
            exchanges.append(_Exchange(number, line["request"], events))
        except (ValueError, KeyError, TypeError, RecursionError, InvalidJson) as error:
            raise ConfigurationError(f"{path}, line {number}, is no recording: {error}") from error
    return header, exchanges


def _header(line: Any) -> Mapping[str, Any]:
    version = line["recording"]
    if version != VERSION:
        raise ValueError(f"its version is {version!r}, this library reads {VERSION}")
    return dict(line)
