"""AgentCore's door: a loop as an iterable of events, or with an event sink.

    for event in agent_loop(prompts, context, config, stream_fn=provider):
        ...

The loop runs on a thread of its own and never waits for its reader.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue
from types import TracebackType
from typing import Self

import attrs

from yiemagent.abort import AbortSignal, Deadline, checked_timeout, current_signal
from yiemagent.config import AgentLoopConfig
from yiemagent.context import AgentContext
from yiemagent.errors import AgentStateError, ConfigurationError, ResponseTimeout
from yiemagent.events import Event, EventSink
from yiemagent.llm import StreamFn, stream_fn_of
from yiemagent.loop import LoopPorts, run_loop
from yiemagent.messages import AgentMessage, AssistantMessage
from yiemagent.openai_format import user_message
from yiemagent.options import check_function, check_option
from yiemagent.pool import DaemonPool
from yiemagent.relay import Steps
from yiemagent.run import Run
from yiemagent.state import AgentState
from yiemagent.transcript import Transcript

__all__ = ["EventStream", "agent_loop", "agent_loop_continue", "run_agent_loop"]

_numbers = itertools.count(1)


class EventStream:
    """The events of one run, as they come; iterated once, by one thread.

    The run goes on whether or not it is read. `break` alone changes nothing; `close()`, leaving its `with`, or
    dropping the stream aborts the run.
    """

    def __init__(self, run: Run, events: SimpleQueue[Event | None]) -> None:
        self._run = run
        self._events = events
        self._drop = weakref.finalize(self, run.signal.abort, "the event stream was dropped")
        self._drop.atexit = False

    def __iter__(self) -> Iterator[Event]:
        while (event := self._events.get()) is not None:
            yield event
        self._events.put(None)  # so that iterating again ends at once instead of waiting for ever

    def result(self, timeout_s: float | None = None) -> tuple[AgentMessage, ...]:
        """Block until the run is over, whether or not the events are read; gives what it added to the history.

        The prompts are part of it; after an error or an abort, so is what came before.

        Args:
            timeout_s: seconds to wait at most; None waits for ever.

        Raises:
            ResponseTimeout: where the run is not over in time; it goes on.
            TypeError, ValueError: where `timeout_s` is no number of seconds of 0 or more, and not None.
        """
        if not self._run.wait(Deadline(checked_timeout(timeout_s)).remaining_s()):
            raise ResponseTimeout(f"the run is not over after {timeout_s} s; it goes on")
        return self._run.new_messages

    @property
    def answer(self) -> AssistantMessage | None:
        """The run's answer; None while it is going on."""
        return self._run.answer

    def close(self) -> None:
        """Abort the run; what it emits until its end can still be read."""
        self._run.signal.abort("the event stream was closed")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def agent_loop(
    prompts: Sequence[AgentMessage],
    context: AgentContext,
    config: AgentLoopConfig,
    *,
    stream_fn: StreamFn,
    signal: AbortSignal | None = None,
) -> EventStream:
    """Start a run with new messages and give its events.

    Args:
        prompts: the messages that begin it; a single message or a string stands for a list of one; none continues the
            history, as `agent_loop_continue` does.
        context: what it begins with; it is not changed.
        config: how to work.
        stream_fn: asks the model; anything that `YiemAgent` takes as `llm_call`.
        signal: aborts the run; None: only the stream does, and, in a tool, a hook or a model function, what aborts
            that.

    Raises:
        AgentStateError: where there are no prompts and nothing to continue.
        ConfigurationError: where an argument is of the wrong kind.
    """
    door = _Door(context, config, stream_fn, signal)
    return _stream(_messages(prompts) or door.continuation(), door)


def agent_loop_continue(
    context: AgentContext,
    config: AgentLoopConfig,
    *,
    stream_fn: StreamFn,
    signal: AbortSignal | None = None,
) -> EventStream:
    """Start a run on the history as it is and give its events; what is queued begins it where that can't.

    Raises:
        AgentStateError: where the history is empty, or its last message is an answer that did not fail and nothing is
            queued.
        ConfigurationError: where an argument is of the wrong kind.
    """
    door = _Door(context, config, stream_fn, signal)
    return _stream(door.continuation(), door)


def _stream(prompts: tuple[AgentMessage, ...], door: _Door) -> EventStream:
    events: SimpleQueue[Event | None] = SimpleQueue()
    run = door.run(prompts, events.put, lambda: events.put(None))
    run.start()
    return EventStream(run, events)


def run_agent_loop(
    prompts: Sequence[AgentMessage],
    context: AgentContext,
    config: AgentLoopConfig,
    emit: EventSink,
    *,
    stream_fn: StreamFn,
    signal: AbortSignal | None = None,
) -> tuple[AgentMessage, ...]:
    """Do a run and block until it is over; each event is handed to `emit` before the run goes on.

    Args:
        prompts: as for `agent_loop`; none continues the history, as `agent_loop_continue` does.
        context: what it begins with; it is not changed.
        config: how to work.
        emit: called with each event, one at a time, on the run's threads.
        stream_fn: asks the model; anything that `YiemAgent` takes as `llm_call`.
        signal: aborts the run; None: only what aborts the tool, the hook or the model function that this is called in.
            A KeyboardInterrupt aborts it too.

    Returns:
        What the run added to the history, the prompts included.

    Raises:
        AgentStateError: where there are no prompts and nothing to continue.
        ConfigurationError: where an argument is of the wrong kind.
    """
    door = _Door(context, config, stream_fn, signal)
    _check_sink(emit)
    run = door.run(_messages(prompts) or door.continuation(), emit)
    try:
        run.start()
        run.wait()
    except BaseException:  # a KeyboardInterrupt above all: nobody waits for the run any more
        run.signal.abort("interrupted")
        raise
    return run.new_messages


@attrs.frozen
class _Door:
    """What both doors need to make a run."""

    context: AgentContext
    config: AgentLoopConfig
    stream_fn: StreamFn
    signal: AbortSignal | None

    def __attrs_post_init__(self) -> None:
        _check_kind("context", self.context, AgentContext)
        _check_kind("config", self.config, AgentLoopConfig)
        if self.signal is not None:
            _check_kind("signal", self.signal, AbortSignal)

    def continuation(self) -> tuple[AgentMessage, ...]:
        """Give what begins a run on the history as it is: what is queued, where the last word is the assistant's."""
        if not self.context.messages:
            raise AgentStateError(
                "the history is empty: there is nothing to continue; give prompts"
            )
        last = self.context.messages[-1]
        if not isinstance(last, AssistantMessage) or last.failed:
            return ()
        for getter in (self.config.get_steering_messages, self.config.get_follow_up_messages):
            queued = tuple(getter()) if getter is not None else ()
            if queued:
                return queued
        raise AgentStateError(
            "the last message is the assistant's: there is nothing to answer; give prompts"
        )

    def run(
        self,
        prompts: tuple[AgentMessage, ...],
        sink: EventSink,
        on_done: Callable[[], None] = lambda: None,
    ) -> Run:
        """Make a run that has not started; its pool ends with it."""
        name = f"yiem-loop-{next(_numbers)}"
        pool = DaemonPool(f"{name}-tool")
        signal = AbortSignal(self.signal or current_signal.get())
        stream_fn = stream_fn_of(self.stream_fn)

        def work(run: Run) -> Steps[AssistantMessage]:
            ports = LoopPorts(stream_fn=stream_fn, emit=run.emit, pool=pool, name=name)
            return (yield from run_loop(prompts, self.context, self.config, run.signal, ports))

        def done() -> None:
            signal.release()
            pool.shutdown(wait=False)
            on_done()

        return Run(
            work,
            name=name,
            state=_state(self.context, self.config),
            prompts=prompts,
            sinks=(sink,),
            signal=signal,
            grace_s=self.config.abort_grace_s,
            on_done=done,
            on_exit=on_done,  # whoever still reads is to end
        )


def _check_kind(name: str, given: object, kind: type) -> None:
    if not isinstance(given, kind):
        raise ConfigurationError(f"{name} must be an {kind.__name__}, not {given!r}")


def _check_sink(emit: object) -> None:
    check_option("emit", emit, "a function of an event", fits=callable(emit))
    check_function("emit", emit, "event")


def _state(context: AgentContext, config: AgentLoopConfig) -> AgentState:
    return AgentState(context.system_prompt, config.model, context.tools, context.messages)


def _messages(prompts: object) -> tuple[AgentMessage, ...]:
    """Give prompts as messages: a string or a single message stands for a list of one."""
    several = prompts if isinstance(prompts, (list, tuple, Transcript)) else (prompts,)
    return tuple(
        prompt if hasattr(prompt, "to_llm") else user_message(prompt) for prompt in several
    )
