"""`YiemAgent`: the agent that people hold. Its thread does not hold it, so that dropping it ends it."""

from __future__ import annotations

import itertools
import logging
import os
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, NoReturn, Self

import attrs

from yiemagent.agent_core import AgentCore
from yiemagent.config import AgentLoopConfig
from yiemagent.context import AgentContext
from yiemagent.errors import ConfigurationError
from yiemagent.events import EventSink
from yiemagent.journal import Journal, Session
from yiemagent.llm import stream_fn_of
from yiemagent.machine import State, classify
from yiemagent.messages import AgentMessage, LlmUsage
from yiemagent.options import check_function, check_option
from yiemagent.registry import ToolStore, collect_registrations, register_tool
from yiemagent.resuming import restore
from yiemagent.state import AgentState
from yiemagent.tool import AgentTool
from yiemagent.transcript import Transcript

__all__ = ["YiemAgent"]

logger = logging.getLogger("yiemagent.agent")

_numbers = itertools.count(1)
_QUEUE_GETTERS = {"get_steering_messages", "get_follow_up_messages"}

_NEW_ONE = "make a new one that goes on with its history: YiemAgent(…, messages=agent.messages)"


class YiemAgent:
    """An agent: give it messages, take its answers.

    The thread starts with the first message. Use it as a context manager, or end it with `stop_agent`; an agent that
    nobody holds any more finishes what it accepted and ends by itself. Leaving its `with` block waits for the run going
    on, but not for messages that have not begun. What it was made with stays: nothing of it can be set, and it can't be
    copied or pickled.

    Args:
        llm_call: a provider, any `StreamFn`, a plain callable of the request dict, or a model string ("openai:…",
            "local").
        system_prompt: instructions for the model.
        model: the model to ask, or None for the provider's own.
        tools: a mapping of tools (`get_tools(store)`), or a sequence of `AgentTool`s or plain functions.
        tool_store: a live store: what is registered there can be called in the next turn.
        mcp_server: a callable `mcp_server("tools/list")`, `mcp_server("tools/call", name, arguments)`; adds
            `list_tools`, which discovers its tools.
        messages: the history to begin with, oldest first.
        session: keeps the conversation and gives the history to begin with, such as
            `yiemagent.sessions.Session.open(path)`; what waited in it waits again, and `resume_agent` goes on with it.
        session_id: opaque key for caches and affinity; None: the session's, else a fresh one.
        event_sink: called with each event, in order; or several sinks.
        prepare_context: `(AgentState)`, before each request; gives the `AgentContext` to send.
        format_msg_for_llm: `(AgentContext)`; gives the request dict for a plain `llm_call`.
        parallel_tool_execute: False is short for `tool_execution="sequential"`.
        name: for threads and error texts.
        **config: the fields of `AgentLoopConfig` but the two queue getters.

    Raises:
        ConfigurationError: where an argument doesn't exist or is of the wrong kind; where the session is another
            agent's, or has messages and `messages` are given, too.
        DuplicateTool: where a tool's name is taken in the store.
    """

    # A mistyped or late option is refused, not taken and never looked at; a subclass has a dict for what is its own.
    __slots__ = ("__weakref__", "_core", "_end")

    def __init__(
        self,
        llm_call: Any,
        *,
        system_prompt: str = "You are a helpful assistant.",
        model: Any = None,
        tools: Mapping[str, AgentTool] | Iterable[AgentTool | Callable[..., Any]] | None = None,
        tool_store: ToolStore | None = None,
        mcp_server: Callable[..., Any] | None = None,
        messages: Sequence[AgentMessage] = (),
        session: Session | None = None,
        session_id: str | None = None,
        event_sink: EventSink | Sequence[EventSink] | None = None,
        prepare_context: Callable[[AgentState], AgentContext] | None = None,
        format_msg_for_llm: Callable[[AgentContext], Mapping[str, Any]] | None = None,
        parallel_tool_execute: bool = True,
        name: str | None = None,
        **config: Any,
    ) -> None:
        check_option(
            "system_prompt", system_prompt, "a string", fits=isinstance(system_prompt, str)
        )
        check_option("name", name, "a string or None", fits=isinstance(name, str | None))
        name = name or f"agent-{next(_numbers)}"
        check_function("prepare_context", prepare_context, "state")
        if session is not None and session_id is None:
            session_id = getattr(session, "id", None)
        parts: dict[str, Any] = {
            "stream_fn": stream_fn_of(llm_call, format_msg_for_llm),
            "config": _config(config, model, session_id, parallel=parallel_tool_execute),
            "sinks": _sinks(event_sink),
            "prepare_context": prepare_context,
        }
        history = _history(messages)
        # Behind all options: where one is wrong, nothing was put into a store that is somebody else's too.
        store = _store(tools, tool_store, mcp_server)
        journal = Journal(
            session, name
        )  # last of what may fail: from here on the session is this agent's
        try:
            state = AgentState(
                system_prompt, model, store.snapshot(), Transcript(journal.begin(history))
            )
            self._core = AgentCore(name=name, store=store, state=state, journal=journal, **parts)
            restore(self._core)
        except BaseException:  # whatever it is, there will be no agent: the session is free again
            journal.end()
            raise
        self._end = weakref.finalize(self, self._core.drain)
        self._end.atexit = False

    @property
    def name(self) -> str:
        """The agent's name."""
        return self._core.name

    @property
    def state(self) -> AgentState:
        """What the agent is at this moment; frozen."""
        return self._core.current_state()

    @property
    def messages(self) -> tuple[AgentMessage, ...]:
        """The history at this moment, oldest first."""
        return tuple(self._core.current_state().messages)

    @property
    def usage(self) -> LlmUsage:
        """What the agent consumed since it was made: tokens, and cost where prices are known."""
        return self._core.current_state().usage

    @property
    def tool_store(self) -> ToolStore:
        """The live store of the agent's tools."""
        return self._core.store

    @property
    def channel_state(self) -> State:
        """Which of the six states the channels and the run are in at this moment."""
        return classify(self._core.view())

    def __setattr__(self, name: str, value: object) -> None:
        try:
            object.__setattr__(self, name, value)
        except AttributeError:
            raise AttributeError(
                f"{name!r} of an agent can't be set, it stays as it was made; {_NEW_ONE}"
            ) from None

    def __reduce__(self) -> NoReturn:
        """Refuse what would make two agents of one thread: `copy.copy`, `copy.deepcopy` and pickling."""
        raise TypeError(f"an agent can't be copied or pickled; {_NEW_ONE}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            self._core.abort("the agent's with block was left by an exception")
        left = self._core.stop(None, hands_back=False)
        if left and self._core.journal.session is None:  # else they wait there
            logger.warning(
                "agent %r was left with %d message(s) that entered no run; take_response waits for the answers, "
                "stop_agent gives such messages back",
                self.name,
                len(left),
            )

    def __repr__(self) -> str:
        state = "stopped" if self._core.stopped else self.channel_state.name.lower()
        return f"<YiemAgent {self.name!r} {state}>"


def _history(given: Any) -> list[AgentMessage]:
    fits = isinstance(given, Iterable) and not isinstance(given, (str, bytes, Mapping))
    check_option("messages", given, "a list of messages", fits=fits)
    messages = list(given)
    for message in messages:
        if not hasattr(message, "to_llm") or isinstance(message, type):
            raise ConfigurationError(f"messages holds {message!r}, which is no message")
    return messages


def _sinks(given: EventSink | Sequence[EventSink] | None) -> tuple[EventSink, ...]:
    sinks = () if given is None else tuple(given) if isinstance(given, (list, tuple)) else (given,)
    for sink in sinks:
        check_option("event_sink", sink, "a function or a list of them", fits=callable(sink))
        check_function("event_sink", sink, "event")
    return sinks


def _config(
    given: dict[str, Any], model: Any, session_id: str | None, *, parallel: bool
) -> AgentLoopConfig:
    check_option(
        "parallel_tool_execute", parallel, "True or False", fits=isinstance(parallel, bool)
    )
    if not parallel:
        given.setdefault("tool_execution", "sequential")
    for own in _QUEUE_GETTERS & set(given):
        raise ConfigurationError(f"{own} is the agent's own; use steer() and follow_up()")
    known = {field.name for field in attrs.fields(AgentLoopConfig)} - _QUEUE_GETTERS
    if unknown := sorted(set(given) - known):
        taken = sorted(known | set(YiemAgent.__init__.__kwdefaults__ or ()))
        raise ConfigurationError(
            f"YiemAgent has no option {', '.join(unknown)}; it takes {', '.join(taken)}"
        )
    if session_id is None or session_id == "":
        session_id = os.urandom(16).hex()
    return AgentLoopConfig(model=model, session_id=session_id, **given)


def _store(
    tools: Any, tool_store: ToolStore | None, mcp_server: Callable[..., Any] | None
) -> ToolStore:
    if tool_store is None:
        # Where a tool makes this agent, its call did not make these tools available to anybody else.
        with collect_registrations():
            return _filled(ToolStore(), tools, mcp_server)
    if not isinstance(tool_store, ToolStore):
        raise ConfigurationError(f"tool_store must be a ToolStore, not {tool_store!r}")
    return _filled(tool_store, tools, mcp_server)


def _filled(store: ToolStore, tools: Any, mcp_server: Callable[..., Any] | None) -> ToolStore:
    for tool in _given(tools):
        named = getattr(tool, "name", None)
        if named is not None and store.snapshot().get(named) is tool:
            continue
        register_tool(store, tool)
    if mcp_server is not None:
        if not callable(mcp_server):
            raise ConfigurationError(
                f"mcp_server must be callable as mcp_server('tools/list'), not {mcp_server!r}"
            )
        from yiemagent.remote_tools import discovery_tool  # needed with a server only

        discovery = discovery_tool(store, mcp_server)
        if discovery.name in store.snapshot():
            store.remove(discovery.name)
        store.register(discovery)
    return store


def _given(tools: Any) -> Iterable[Any]:
    """Give the tools of `tools=`, whatever holds them."""
    if isinstance(tools, ToolStore):
        raise ConfigurationError(
            "tools is a ToolStore; give a live store as tool_store=, or its tools with get_tools(store)"
        )
    if isinstance(tools, Mapping):
        return tools.values()
    if isinstance(tools, str) or not isinstance(tools, Iterable | None):
        raise ConfigurationError(f"tools must be a mapping or a list of tools, not {tools!r}")
    return tools or ()
