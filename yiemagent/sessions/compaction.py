"""Keeping a conversation within the model's window: a summary in place of what is old, shorter results where one is
too large.

Nothing of the history is changed. What is sent is the summary, then what follows the cut; before each request the size
of that is looked at, which costs what is new since the last one. A summary is asked for when the size passes the window
less a reserve, or when the model refuses a context as too long; then once for each refusal.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from yiemagent.codec import json_payload
from yiemagent.config import FitRequest
from yiemagent.errors import CompactionError, ConfigurationError
from yiemagent.events import CompactionEndEvent, CompactionStartEvent
from yiemagent.llm import StreamFn, StreamOptions, stream_fn_of
from yiemagent.messages import (
    AgentMessage,
    CompactionSummaryMessage,
    LlmModel,
    LlmUsage,
    ToolResultMessage,
    model_id,
)
from yiemagent.payload import FrozenDict
from yiemagent.sessions.cuts import (
    Cut,
    find_cut,
    last_turn_tokens,
    result_batches,
    shorten_batch,
    shorten_result,
)
from yiemagent.sessions.summaries import Summariser, Summary, SummaryPrompts
from yiemagent.sessions.tokens import Meter, message_tokens
from yiemagent.transcript import Transcript, transcript

__all__ = ["Compaction", "known_window", "window_told"]

_MOST_RESERVED = 16_384
_MOST_KEPT = 20_000
_LEAST_ASSUMED = 8_000  # of a window that is not known, where somebody asks for a summary
_LEAST_ROOM = 0.05  # of the window: with less beside instructions and tools, nothing can be kept


def _one_or_more(_owner: Any, field: Any, value: Any) -> None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if value is not None and not (whole and value >= 1):
        raise ConfigurationError(f"{field.name} must be a number of tokens or None, not {value!r}")


def _model(given: Any) -> Any:
    """Give a model to ask for summaries: a `StreamFn`, or what to ask the agent's own provider for."""
    if given is None or isinstance(given, LlmModel):
        return given
    if isinstance(given, str) and ":" not in given and given != "local":
        return given
    return stream_fn_of(given)


@attrs.frozen(kw_only=True)
class Compaction:
    """How conversations are kept within the model's window; one may serve many agents.

    Args:
        context_window: tokens that a request and its answer may have together; None: what is known of the model. Where
            nothing is, the history is shortened only when the model refuses it, and what it says of its window counts.
        reserve_tokens: what of the window is left for the answer; None: a quarter of it, 16,384 at most. At least what
            `max_tokens` asks for.
        keep_recent_tokens: how much of the latest messages stays as it is; None: a quarter of the window, 20,000 at
            most.
        max_result_tokens: a larger tool result is shown to the model with its middle left out; None: a quarter of the
            window. The results of one turn together have half of what there is room for.
        model: who summarises: a provider or model string ("openai:gpt-5-mini"), or the name of another model of the
            agent's own provider; None: the agent's own model.
        instructions: what summaries should heed beside what `prompts` say.
        prompts: what the model is told that summarises.

    Raises:
        ConfigurationError: a number is none, or together they leave no room.
    """

    context_window: int | None = attrs.field(default=None, validator=_one_or_more)
    reserve_tokens: int | None = attrs.field(default=None, validator=_one_or_more)
    keep_recent_tokens: int | None = attrs.field(default=None, validator=_one_or_more)
    max_result_tokens: int | None = attrs.field(default=None, validator=_one_or_more)
    model: Any = attrs.field(default=None, converter=_model)
    instructions: str | None = None
    prompts: SummaryPrompts = attrs.field(
        factory=SummaryPrompts, validator=attrs.validators.instance_of(SummaryPrompts)
    )

    def __attrs_post_init__(self) -> None:
        asked = (self.reserve_tokens or 0) + (self.keep_recent_tokens or 0)
        if self.context_window is not None and asked >= self.context_window:
            raise ConfigurationError(
                f"reserve_tokens and keep_recent_tokens leave no room in a window of "
                f"{self.context_window} tokens: make them smaller"
            )

    def begin(self) -> _Compactor:
        """Begin with a conversation; the loop calls this."""
        return _Compactor(self)


@attrs.frozen
class _Limits:
    """What a conversation may have, in tokens."""

    window: int
    limit: int  # of a whole request
    room: int  # of its messages
    summary: int
    keep: int
    result: int
    results: int  # of one turn together


def _limits(settings: Compaction, window: int, fixed: int, max_tokens: int | None) -> _Limits:
    """Give the limits in a window where instructions and tools take `fixed` tokens."""
    reserve = settings.reserve_tokens or min(_MOST_RESERVED, window // 4)
    reserve = min(max(reserve, max_tokens or 0), window * 3 // 4)
    room = max(0, window - reserve - fixed)
    results = room // 2
    return _Limits(
        window,
        window - reserve,
        room,
        summary=max(1, min(reserve * 4 // 5, room // 4)),
        keep=min(settings.keep_recent_tokens or min(_MOST_KEPT, window // 4), room // 2),
        result=min(settings.max_result_tokens or window // 4, results),
        results=results,
    )


@attrs.define(eq=False, repr=False)
class _Compactor:
    """Keeps the requests of one conversation within the window; used by one thread at a time."""

    settings: Compaction
    meter: Meter = attrs.field(factory=Meter)
    seen: Sequence[AgentMessage] = ()
    # What models turned out to take, by model, in tokens as they are estimated here.
    refused: dict[str, int] = attrs.field(factory=dict)
    # Results that are shown shorter: by the id of the whole one, that one, its limit and the shorter one.
    short: dict[int, tuple[ToolResultMessage, int, ToolResultMessage]] = attrs.field(factory=dict)

    def fit(self, request: FitRequest) -> Sequence[AgentMessage]:
        """Give the messages to go on with; see the port in `config`."""
        self.meter.measure_fixed(request.context)
        messages, size = self._measured(request, request.context.messages)
        wanted = request.asked_for is not None
        if request.overflow is not None:
            self._learn(request, size)
            refused = messages
            messages, size = self._measured(request, messages)
            size = max(size, self.meter.estimate)
            wanted = (
                messages is refused
            )  # the same must not be sent again, whatever its size seems to be
        self.seen = messages
        limits = self._limits_of(request)
        if limits is None:
            if not wanted:
                return messages
            limits = self._limits_in(request, max(2 * size, _LEAST_ASSUMED))
        if size <= limits.limit and not wanted:
            return messages
        return self._compacted(request, transcript(messages), size, limits)

    # -- looking --

    def _measured(
        self, request: FitRequest, messages: Sequence[AgentMessage]
    ) -> tuple[Sequence[AgentMessage], int]:
        """Give the messages with results that are too large shortened, and the size of a request with them."""
        limits = self._limits_of(request)
        if limits is not None:
            messages = self._shortened(messages, limits, refused=request.overflow is not None)
        return messages, self.meter.size(messages)

    def _limits_of(self, request: FitRequest) -> _Limits | None:
        window = self._window(request)
        return None if window is None else self._limits_in(request, window)

    def _limits_in(self, request: FitRequest, window: int) -> _Limits:
        fixed = self.meter.scaled(self.meter.fixed)
        return _limits(self.settings, window, fixed, request.options.max_tokens)

    def _window(self, request: FitRequest) -> int | None:
        """Give how much the model takes, as far as that is known."""
        refused = self.refused.get(model_id(request.options.model))
        known = self.settings.context_window or known_window(request.stream_fn, request.options)
        if refused is None or known is None:
            return refused or known
        return min(refused, known)

    def _learn(self, request: FitRequest, size: int) -> None:
        """Note what the model takes, from what it refused and what it said of it.

        Where it names no window, that is somewhere between what it took and what it refused; half of the refused, or
        what it took, is a safe guess, since one more request is all that follows.
        """
        refused = max(size, self.meter.estimate)
        told = window_told(str(request.overflow))
        guess = max(refused // 2, self.meter.reported or 0) if told is None else told
        window = min(n for n in (guess, self._window(request), refused) if n is not None)
        self.refused[model_id(request.options.model)] = max(1, window)

    def _shortened(
        self, messages: Sequence[AgentMessage], limits: _Limits, *, refused: bool
    ) -> Sequence[AgentMessage]:
        """Give messages with the results shortened that are too large; walks what is new, where none was refused."""
        known = 0 if refused else len(self.seen)
        if len(messages) < known or not _goes_on(self.seen, messages, known):
            known = 0
        changed: list[AgentMessage] | None = None
        for first, end in result_batches(messages, known):
            batch = messages[first:end]
            sizes, scale = list(map(message_tokens, batch)), self.meter.scale
            most = shorten_batch(sizes, int(limits.result / scale), int(limits.results / scale))
            for place, size in zip(range(first, end), sizes, strict=True):
                if size > most:
                    changed = list(messages) if changed is None else changed
                    changed[place] = self._short_form(messages[place], most)
        return messages if changed is None else Transcript(changed)

    def _short_form(self, result: Any, most: int) -> ToolResultMessage:
        """Give a result shortened: the same object each time, so that what was sent before is sent again."""
        kept = self.short.get(id(result))
        if kept is None or kept[0] is not result or kept[1] != most:
            kept = self.short[id(result)] = (result, most, shorten_result(result, most))
        return kept[2]

    # -- shortening --

    def _compacted(
        self, request: FitRequest, messages: Transcript, size: int, limits: _Limits
    ) -> Sequence[AgentMessage]:
        """Give the messages with a summary in place of the old ones."""
        asked_for = request.asked_for is not None
        keep = int(limits.keep / self.meter.scale)
        if asked_for:  # as little as makes sense: the last turn, where it is not all there is
            keep = min(keep, last_turn_tokens(messages) or int(size / self.meter.scale) // 4)
        cut = find_cut(messages, keep)
        problem = self._problem(messages, cut, limits)
        if cut is None or problem is not None:
            if request.overflow is None and not asked_for and size <= limits.window:
                return messages  # it may still be answered, and what comes next may help
            raise CompactionError(f"cannot compact: {problem}")
        before = {"tokens_before": size, "reason": _reason(request)}
        text = f"the conversation has about {size} tokens and is being shortened"
        request.emit(CompactionStartEvent(text, FrozenDict(before)))
        try:
            summary = self._summary(request, messages, cut, limits)
        except CompactionError as error:
            facts = FrozenDict({**before, "error": str(error)})
            request.emit(CompactionEndEvent(f"the conversation stays as it is: {error}", facts))
            raise
        return self._shown(request, messages, cut, summary, before)

    def _problem(self, messages: Transcript, cut: Cut | None, limits: _Limits) -> str | None:
        """Give why a cut would not help, or None."""
        scaled = self.meter.scaled
        fixed = scaled(self.meter.fixed)
        if limits.room < limits.window * _LEAST_ROOM:
            return (
                f"the system prompt and the tools take about {fixed} of {limits.limit} tokens, which leaves no room "
                f"for a conversation"
            )
        if cut is None:
            return (
                f"there is nothing before the latest messages, and they have about "
                f"{scaled(sum(map(message_tokens, messages)))} tokens in a window of {limits.window}"
            )
        kept = scaled(cut.kept_tokens)
        if fixed + kept > limits.window:
            return (
                f"the latest messages alone have about {kept} tokens in a window of {limits.window}"
            )
        return None

    def _summary(
        self, request: FitRequest, messages: Transcript, cut: Cut, limits: _Limits
    ) -> Summary:
        head = messages[0]
        earlier = head.summary if isinstance(head, CompactionSummaryMessage) else None
        split = cut.kept if cut.turn_start is None else cut.turn_start
        history, turn = messages[cut.start : split], messages[split : cut.kept]
        if earlier and not history and len(earlier) > limits.summary * 3:
            history, turn = turn, ()  # else summaries of turns would pile up
        done = self._summariser(request, limits).conversation(
            earlier, history, turn, request.signal
        )
        if not done.text:
            raise CompactionError("cannot compact: what is old holds nothing that could be told")
        return done

    def _summariser(self, request: FitRequest, limits: _Limits) -> Summariser:
        """Give who summarises: as the settings say, or the agent's own model."""
        given, asked = self.settings.model, request.options
        own = not callable(given)
        stream_fn: StreamFn = request.stream_fn if own else given
        options = StreamOptions(
            model=(given or asked.model) if own else None,
            max_tokens=limits.summary,
            cache="none",
            max_retry_delay_ms=asked.max_retry_delay_ms,
            get_api_key=asked.get_api_key,
            on_payload=asked.on_payload if own else None,
            on_response=asked.on_response if own else None,
        )
        window = limits.window
        if given is not None:
            window = known_window(stream_fn, options) or window
        return Summariser(
            stream_fn=stream_fn,
            options=options,
            window=window,
            emit=request.emit,
            prompts=self.settings.prompts,
            instructions=" ".join(filter(None, (self.settings.instructions, request.asked_for))),
        )

    def _shown(
        self,
        request: FitRequest,
        messages: Transcript,
        cut: Cut,
        summary: Summary,
        before: Mapping[str, Any],
    ) -> Transcript:
        """Put the summary in place of what it stands for, and tell of it."""
        message = CompactionSummaryMessage(summary.text, int(before["tokens_before"]))
        kept = messages[cut.kept :]
        shown = Transcript((message, *kept))
        self.meter.begin_anew(shown)
        self.seen = shown
        self.short = {
            key: entry for key, entry in self.short.items() if any(entry[2] is m for m in kept)
        }
        after = self.meter.size(shown)
        facts = FrozenDict({**before, "tokens_after": after, "usage": _usage(summary.usage)})
        lasting = message if request.lasting else None
        text = (
            f"the conversation was shortened from about {message.tokens_before} to {after} tokens"
        )
        request.emit(CompactionEndEvent(text, facts, lasting, len(kept)))
        return shown


def _goes_on(seen: Sequence[AgentMessage], messages: Sequence[AgentMessage], known: int) -> bool:
    if isinstance(messages, Transcript) and messages.continues(seen):
        return True
    return all(one is other for one, other in zip(seen, messages[:known], strict=True))


def _reason(request: FitRequest) -> str:
    if request.overflow is not None:
        return "overflow"
    return "size" if request.asked_for is None else "asked for"


def _usage(usage: LlmUsage | None) -> Any:
    return None if usage is None else json_payload(attrs.asdict(usage))


def known_window(stream_fn: Any, options: StreamOptions) -> int | None:
    """Give the window of the model that a request asks, where it or its provider says."""
    if isinstance(options.model, LlmModel) and options.model.context_window:
        return options.model.context_window
    facts = getattr(stream_fn, "model_facts", None)
    return facts(options.model).context_window if callable(facts) else None


# -- what a refusal says ----------------------------------------------------------------------------------------------

_WINDOW = re.compile(
    r"(?:maximum|max|context|limit|allowed|available|size|range)\b[^\d]{0,40}(\d[\d,_]*)"
    r"|(\d[\d,_]*) maximum",
    re.IGNORECASE,
)
_LEAST_WINDOW = 512


def window_told(text: str) -> int | None:
    """Give the window that a refusal names, as "maximum context length is 8192 tokens" does; None: it names none."""
    found = [int(re.sub(r"[,_]", "", first or second)) for first, second in _WINDOW.findall(text)]
    found += [int(n) for n in re.findall(r"\[1, (\d+)\]", text)]
    return min((n for n in found if n >= _LEAST_WINDOW), default=None)
