"""The agent behind the public one: four bounded channels, the six-state machine on a daemon thread, one run after
another.

Callers touch only channels. The agent's thread waits at the doorbell, looks at the channels, and does what
`machine.decide` says, its runs included. Where user code holds it longer than allowed, whoever ends that run goes on as
the agent's thread. What decides who joins which run, the run's last look at its queues included, happens under one
lock; nothing of the user's runs while it is held.
"""

from __future__ import annotations

import contextvars
import functools
import itertools
import os
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import attrs

from yiemagent.abort import Deadline, current_signal
from yiemagent.channels import Channel, Doorbell, Waiters
from yiemagent.config import AgentLoopConfig, asked_output
from yiemagent.context import AgentContext
from yiemagent.daemon import DaemonThread
from yiemagent.entry import Entry, Receipt, no_place, prompt_of
from yiemagent.errors import AgentStateError, AgentStopped, ChannelFull
from yiemagent.events import EventSink, ToolsChangedEvent
from yiemagent.journal import Journal, WaitsFor
from yiemagent.locks import work_alone
from yiemagent.machine import Action, View, decide
from yiemagent.messages import AgentMessage, AssistantMessage
from yiemagent.registry import ToolStore
from yiemagent.state import AgentState
from yiemagent.tool import AgentTool
from yiemagent.waiting_chain import refuse_waiting_for_itself, remember_waiting

if TYPE_CHECKING:
    from yiemagent.answer import Requests
    from yiemagent.pool import DaemonPool
    from yiemagent.relay import Steps
    from yiemagent.run import Run

__all__ = ["AgentCore"]

INPUT_CAPACITY = 16
FOLLOW_UP_CAPACITY = 32
STEERING_CAPACITY = 32
OUTPUT_CAPACITY = 16

_view = functools.cache(View)  # there are but a few, and the thread looks several times a run


class AgentCore:
    """The agent behind the public one: everything that its thread needs."""

    def __init__(
        self,
        *,
        name: str,
        stream_fn: Any,
        store: ToolStore,
        config: AgentLoopConfig,
        state: AgentState,
        sinks: tuple[EventSink, ...],
        prepare_context: Callable[[AgentState], AgentContext] | None,
        journal: Journal,
    ) -> None:
        self.name = name
        self._thread_name = f"yiem-{name}-loop"
        self.journal = journal
        self.store = store
        self._stream_fn = stream_fn
        self._config = config
        self._sinks = sinks
        self._prepare_context = prepare_context
        self._state = state
        self._bell = Doorbell()
        # The gate: decides which run a message belongs to. Protects everything below. Nothing of the user's runs while
        # it is held, and nothing waits longer than one write of the session takes.
        self._gate = threading.RLock()
        self._places = Waiters(self._gate)  # those who send, while there is no place
        self._input: Channel[Entry] = Channel("input", INPUT_CAPACITY, self._bell)
        self._steering: Channel[Entry] = Channel("steering", STEERING_CAPACITY, self._bell)
        self._follow_up: Channel[Entry] = Channel("follow-up", FOLLOW_UP_CAPACITY, self._bell)
        self._output: Channel[AssistantMessage] = Channel("output", OUTPUT_CAPACITY)
        self._run: Run | None = None
        self._run_entry: Entry | None = None
        self._accepting = False  # whether the current run still takes messages in
        self._in_flight: list[tuple[Channel[Entry], Entry]] = []  # drained, not yet kept
        self._left_over: list[Entry] = []  # accepted, and stopped before it began
        self._reserved = 0  # places in the output channel: answers queued, running or untaken
        self._serials = itertools.count(1)
        self._stopping: Literal["no", "drain", "now"] = "no"
        # Who serves; None: nobody did, or need be waited for.
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()  # nobody serves any more
        self._pid: int | None = None
        self._runs = itertools.count(1)
        # What the last run's requests worked out, so that a run costs what is new. A run takes it out, so that one
        # that was abandoned shares it with nobody; the next then begins anew.
        self._requests: list[Requests] = []
        self._changes_seen = store.change_number
        # Of the run going on; where that made no threads, of the next, too.
        self._pool: DaemonPool | None = None
        self._watched = False  # whether somebody sees to the time limits of its calls

    def channel(self, kind: WaitsFor) -> Channel[Entry]:
        """Where a message waits for what it waits for."""
        return {"input": self._input, "steering": self._steering}.get(kind, self._follow_up)

    # -- looking --

    def current_state(self) -> AgentState:
        """The state of the run that is going on, else the latest."""
        run = self._run
        return run.state if run is not None else self._state

    @property
    def stopped(self) -> bool:
        """Whether it takes nothing in any more."""
        return self._stopping == "now"

    def view(self) -> View:
        """What the thread sees when it looks."""
        with self._gate:
            run: Literal["none", "running", "done"] = "none"
            if self._run is not None:
                run = "done" if self._run.done else "running"
            return _view(run, bool(self._input), bool(self._follow_up), self._stopping)

    # -- what callers do --

    def submit(self, message: Any, schema: Any, *, timeout_s: float | None) -> None:
        """Accept a message that gets a run and an answer of its own."""
        if timeout_s != 0:
            refuse_waiting_for_itself(self, "a waiting run_agent")
        entry = self._entry(prompt_of(message), waits=False, schema=schema)
        self._put(entry, reserve=True, timeout_s=timeout_s)

    def join(self, message: Any, kind: Literal["steering", "follow_up"]) -> Receipt:
        """Accept a message that joins the run going on, or starts one where the agent is idle."""
        entry = self._entry(prompt_of(message), waits=False)
        with self._gate:
            self._check_usable()
            if self._accepting or self._input:
                channel = self.channel(kind)
                if len(channel) >= channel.capacity:
                    raise no_place(self.name, kind, len(channel))
                channel.put(entry)
                try:  # nobody takes it meanwhile: whoever does needs the gate
                    self.journal.accept(kind, entry.message)
                except BaseException:  # it is refused, for whatever reason
                    channel.remove(lambda waiting: waiting is entry)
                    raise
                return Receipt(started=False)
            self._put(entry, reserve=True, timeout_s=0)
            return Receipt(started=True)

    def take(self, timeout_s: float | None) -> AssistantMessage:
        """Take the oldest answer that nobody took."""
        refuse_waiting_for_itself(self, "take_response")
        self._check_process()
        answer = self._output.get(timeout_s, current_signal.get())
        with self._gate:
            self._reserved -= 1
            self._places.tell()
        return answer

    def abort(self, reason: str | None) -> bool:
        """Abort the run going on, or the one about to start; gives whether there was one. Never waits.

        So it looks without the gate, which is held for as long as a write of the session takes.
        """
        if self._is_elsewhere():
            return False
        run, entry = self._run, self._run_entry
        if run is not None and run.done:
            return False
        if entry is None:
            first = self._input.peek()
            entry = self._run_entry or first  # its run may have begun since, and is the one then
        return entry is not None and entry.signal.abort(reason)

    def stop(self, timeout_s: float | None, *, hands_back: bool) -> tuple[AgentMessage, ...]:
        """End the agent; gives the messages that entered no run, in the order in which they were accepted.

        Where they are not handed back, since nobody takes them, they go on waiting in the session.
        """
        refuse_waiting_for_itself(self, "stop_agent")
        if self._is_elsewhere():  # a fork; what there is to stop is the parent's
            return ()
        with self._gate:
            self._stopping = "now"
            self._accepting = False
            self._input.close()
            unstarted = self._input.drain()
            self._left_over.extend(unstarted)
            self._places.tell()
            started = self._thread is not None
        for entry in unstarted:
            if entry.reply is not None:
                entry.reply.give(AgentStopped(f"agent {self.name!r} was stopped"))
        self._bell.ring()
        if started:
            self._await_end(timeout_s)
        else:
            self._output.close()
        left_over = self._take_left_over()
        try:
            if hands_back:
                self.journal.hand_back(left_over)
        finally:
            self.journal.end()
        return left_over

    def _await_end(self, timeout_s: float | None) -> None:
        if not self._ended.wait(Deadline(timeout_s).remaining_s()):
            self.abort("the agent was stopped")
            self._ended.wait()
        thread = self._thread
        if thread is not None:
            thread.join()

    def drain(self) -> None:
        """Finish what was accepted and end; called by a finalizer, in the middle of anything, so it takes no lock."""
        if self._stopping == "no":
            self._stopping = "drain"
        if self._thread is None:
            self.journal.end()
        self._bell.ring()

    # -- accepting --

    def _entry(self, message: AgentMessage | None, *, waits: bool, schema: Any = None) -> Entry:
        context = contextvars.copy_context()
        context.run(remember_waiting, self, waits=waits)
        if not waits:
            context.run(work_alone)
        return Entry(message, next(self._serials), context, asked_output(schema))

    def _put(self, entry: Entry, *, reserve: bool, timeout_s: float | None) -> None:
        """Put an entry into the input channel, once there is place for it and, where it needs one, for its answer."""
        deadline = Deadline(timeout_s)
        with self._gate:
            self._check_usable()
            while len(self._input) >= INPUT_CAPACITY or (
                reserve and self._reserved >= OUTPUT_CAPACITY
            ):
                remaining = deadline.remaining_s()
                if remaining == 0.0:
                    raise ChannelFull(
                        f"agent {self.name!r} has {self._reserved} answers queued, running or untaken and "
                        f"{len(self._input)} messages waiting; take answers first, or give run_agent a timeout_s"
                    )
                self._places.wait(remaining, current_signal.get())
                self._check_usable()
            self._start_thread()
            if reserve:  # who asks is gone with its process, and nobody would take the answer
                self.journal.accept("input", entry.message)
            self._input.put(entry)
            self._reserved += reserve

    def _start_thread(self) -> None:
        if self._thread is not None:
            return
        self._pid = os.getpid()
        thread = self._thread = DaemonThread(target=self._begin, name=self._thread_name)
        try:
            thread.start()
        except BaseException:  # whatever it is, nobody serves; see `_begin`
            self._thread = self._pid = None
            raise

    def _check_usable(self) -> None:
        self._check_process()
        if self._stopping != "no":
            raise AgentStopped(f"agent {self.name!r} was stopped; make a new one")

    def _is_elsewhere(self) -> bool:
        """Whether its thread is in the process that this one was forked from."""
        return self._pid is not None and self._pid != os.getpid()

    def _check_process(self) -> None:
        if self._is_elsewhere():
            raise AgentStateError(
                f"agent {self.name!r} was in use when this process was forked, and its thread stayed "
                f"behind; make a new agent in the child process"
            )

    def _take_back(self, entry: Entry) -> bool:
        with self._gate:
            taken = self._input.remove(lambda waiting: waiting is entry) is not None
            self._places.tell()
            return taken

    # -- the thread --

    def _begin(self) -> None:
        # Whoever starts this thread holds the gate until it has gone on, or was interrupted and wants none.
        with self._gate:
            wanted = self._thread is threading.current_thread()
        if wanted:
            self._serve()

    def _serve(self) -> None:
        """Serve the channels as the agent's thread, until nothing is left to do or somebody else goes on."""
        before, thread = self._thread, threading.current_thread()
        if before is not None and before is not thread:  # user code holds it
            before.name = f"yiem-{self.name}-left-behind"
        self._thread = thread
        thread.name = self._thread_name
        while True:
            match decide(self.view()):
                case Action.WAIT:
                    self._bell.wait()
                case Action.START:
                    if not self._serve_run():
                        return
                case Action.DELIVER:
                    self._deliver()
                case Action.END:
                    break
        self._finish()

    def _serve_run(self) -> bool:
        """Do the run of the next message; gives False where somebody else goes on as the agent's thread."""
        with self._gate:
            # Noted before it is taken, so that an abort, which looks without the gate, finds it here or there.
            entry = self._run_entry = self._input.peek()
            if entry is None:  # taken back since the thread looked
                return True
            self._input.take()
            self._places.tell()
            run = self._run = self._new_run(entry)
            self._accepting = entry.loop is None
        return run.serve()

    def _new_run(self, entry: Entry) -> Run:
        # All that runs a loop loads with the first run: a program that only makes an agent starts without it.
        from yiemagent.answer import Requests
        from yiemagent.loop import LoopPorts, run_loop
        from yiemagent.pool import DaemonPool
        from yiemagent.run import Run, call_watch

        if not self._watched:
            self._watched = True
            call_watch.enter()
        if self._pool is None:
            self._pool = DaemonPool(f"yiem-{self.name}-tool")
        pool = self._pool
        prompts = () if entry.message is None else (entry.message,)
        state, tools = self._state, self.store.snapshot()
        if tools is not state.tools:
            state = attrs.evolve(state, tools=tools)

        def work(run: Run) -> Steps[AssistantMessage]:
            requests = self._requests.pop() if self._requests else Requests()
            ports = LoopPorts(
                stream_fn=self._stream_fn,
                emit=run.emit,
                pool=pool,
                live_tools=self._live_tools(run),
                prepare_context=self._prepared(run),
                requests=requests,
                get_steering_messages=lambda: self._look(run, self._steering),
                get_follow_up_messages=lambda: self._last_look(run),
                begin_call=run.begin_call,
                takes_up=entry.takes_up,
                name=run.name,
            )
            context = AgentContext(state.system_prompt, state.context_messages, state.tools)
            config, loop = entry.settings(self._config), entry.loop or run_loop
            answer = yield from loop(prompts, context, config, run.signal, ports)
            self._requests[:] = [requests]
            return answer

        return Run(
            work,
            name=f"yiem-{self.name}-run-{next(self._runs)}",
            state=state,
            prompts=prompts,
            sinks=self._sinks,
            record=self.journal.record,
            record_call=self.journal.record_call,
            signal=entry.signal,
            grace_s=self._config.abort_grace_s,
            context=entry.context,
            on_message=self._told,
            close_gate=lambda: self._close_gate(entry),
            on_done=self._serve,
            on_exit=self._give_up,
        )

    def _live_tools(self, run: Run) -> Callable[[], Mapping[str, AgentTool]]:
        """Give what gives the tools on offer; what changed in watched folders since the last turn is told first."""

        def tools() -> Mapping[str, AgentTool]:
            for change in self.store.look(self._changes_seen):
                self._changes_seen = change.number
                run.emit(ToolsChangedEvent(change.message, change.details))
            return self.store.snapshot()

        return tools

    def _prepared(self, run: Run) -> Callable[[AgentContext], AgentContext] | None:
        prepare = self._prepare_context
        if prepare is None:
            return None
        return lambda context: prepare(run.state.showing(context))

    def _look(self, run: Run, channel: Channel[Entry]) -> tuple[AgentMessage, ...]:
        """Drain a channel for a run; what is drained stays in flight until it is in the history."""
        if not channel:  # as at nearly every turn; what comes later is found at the next look
            return ()
        with self._gate:
            if self._run is not run or not self._accepting:
                return ()
            entries = channel.drain()
            self._in_flight.extend((channel, entry) for entry in entries)
            return tuple(entry.message for entry in entries if entry.message is not None)

    def _last_look(self, run: Run) -> tuple[AgentMessage, ...]:
        """Give what still joins a run that would stop; where nothing does, it takes nothing in any more: one step."""
        with self._gate:
            waiting = self._look(run, self._steering) or self._look(run, self._follow_up)
            if not waiting and self._run is run:
                self._accepting = False
            return waiting

    def _told(self, message: AgentMessage) -> None:
        """Note that a message is in the history, and so in flight no more."""
        if self._in_flight:
            with self._gate:
                self._in_flight = [one for one in self._in_flight if one[1].message is not message]

    def _close_gate(self, entry: Entry) -> None:
        """Let what arrives from now on belong to the next run; what was drained and not told goes back."""
        with self._gate:
            if self._run_entry is not entry:  # left behind on the way here
                return
            self._accepting = False
            if self._in_flight:
                for channel in (self._steering, self._follow_up):
                    channel.restore([entry for home, entry in self._in_flight if home is channel])
                self._in_flight = []

    def _deliver(self) -> None:
        with self._gate:
            run, entry = self._run, self._run_entry
            assert run is not None
            assert entry is not None
            self._close_gate(entry)  # who was to may be left behind on the way
            self._state = run.state
            self._run = self._run_entry = None
            answer = run.answer
            assert answer is not None
            if entry.reply is None:
                self._output.put(answer)
        if entry.reply is not None:
            entry.reply.give(answer)
        if self._pool is not None and self._pool.has_threads:  # an idle agent keeps none
            self._pool.shutdown(wait=False)
            self._pool = None

    def _finish(self) -> None:
        if self._watched:
            from yiemagent.run import call_watch

            call_watch.leave()
        self._output.close()
        if self._stopping == "drain":  # else whoever stops it has the last word
            self.journal.end()
        self._ended.set()

    def _give_up(self) -> None:
        """Let nobody wait for a thread that the exit of the interpreter found in a run, or for what it would give."""
        self._stopping = "now"
        self._thread = None
        self._output.close()
        self._ended.set()

    def _take_left_over(self) -> tuple[AgentMessage, ...]:
        with self._gate:
            entries = [*self._left_over, *self._steering.drain(), *self._follow_up.drain()]
            self._left_over = []
        entries.sort(key=lambda entry: entry.serial)
        return tuple(entry.message for entry in entries if entry.message is not None)
