"""Agents that are killed at random moments, again and again, and what must hold of their sessions afterwards.

    python tests/sessions/crash.py KILLS SEED [jsonl|sqlite]

A process that has loaded everything forks a child for each life of an agent, so that a life costs milliseconds. The
child opens the session, goes on with what it finds, sends itself work, and is killed: by its parent after a while, or
by itself at a random event or in a tool. What its sinks were told and its senders were promised it notes in a file of
its own. After each death the session is looked at; at the end a child lives.
"""

from __future__ import annotations

import json
import logging
import os
import pathlib
import random
import select
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter

from yiemagent.agent import YiemAgent
from yiemagent.api import ask, follow_up, resume_agent, run_agent, steer
from yiemagent.events import MessageEndEvent, ToolExecEndEvent
from yiemagent.history import check
from yiemagent.messages import AssistantMessage, ToolResultMessage
from yiemagent.sessions import DeliveredBody, MessageBody, QueuedBody, Session
from yiemagent.testing import ScriptedModel, call, calls
from yiemagent.tool import AgentTool

KILLS_EACH = 6  # deaths of one session
LIFE_S = 0.06  # about as long as a child lives that is not killed


def fresh(word):
    """A text that comes once in the world."""
    return f"{word} {os.urandom(6).hex()}"


class Life:
    """One child: an agent on the session, from opening to death or the end.

    Args:
        folder: where its files are.
        suffix: the kind of session.
        chance: gives its choices.
        dies: whether it may kill itself.
    """

    def __init__(self, folder, suffix, chance, *, dies):
        self.path = folder / f"chat{suffix}"
        self.acks = os.open(folder / "acks", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self.effects = os.open(folder / "effects", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self.chance = chance
        self.steps = chance.randrange(80) if dies else None

    def step(self):
        """Die here, where the time has come."""
        if self.steps is not None:
            self.steps -= 1
            if self.steps < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def told(self, event):
        """A sink: write down what was told, since from now on it must be there."""
        self.step()
        if isinstance(event, (MessageEndEvent, ToolExecEndEvent)):
            self.acknowledge(key(event.message))
        self.step()

    def acknowledge(self, text):
        os.write(self.acks, f"{text}\n".encode())

    def answer(self, context, _signal):
        """The model: two answers with calls for each question, then a text."""
        self.step()
        asked = 0
        for message in reversed(context.messages):
            if message.role == "user":
                break
            asked += bool(getattr(message, "tool_calls", ()))
        if asked >= 2:
            return fresh("done")
        kinds = self.chance.choice([["bump", "bump", "put"], ["bump", "alone", "put"]])
        names = self.chance.choices(kinds, k=self.chance.randint(1, 4))
        return calls(*[call(name, {}, fresh("call")) for name in names], text=fresh("calling"))

    def approve(self, _context, _signal):
        """Somebody is asked about each call, and takes a moment."""
        self.step()
        threading.Event().wait(self.chance.random() / 1000)
        self.step()

    def bump(self, call_id, _args, _signal, _update):
        """A tool whose effect must not come twice."""
        self.step()
        os.write(self.effects, f"{call_id}\n".encode())
        threading.Event().wait(self.chance.random() / 500)
        self.step()
        return "bumped"

    def put(self, _call_id, _args, _signal, _update):
        """A tool that may run again."""
        self.step()
        return "put"

    def live(self):
        """Open the session, go on with what is there, and do some work."""
        fsync = self.chance.choices(["never", "batch", "always"], [18, 1, 1])[0]
        session = Session.open(self.path, create=True, fsync=fsync)
        tools = [
            AgentTool("bump", description="x", execute=self.bump, parallel_tool_execute=True),
            AgentTool("alone", description="x", execute=self.bump),
            AgentTool(
                "put",
                description="x",
                execute=self.put,
                parallel_tool_execute=True,
                annotations={"idempotentHint": True},
            ),
        ]
        model = ScriptedModel(default=self.answer)
        agent = YiemAgent(
            model,
            session=session,
            tools=tools,
            event_sink=self.told,
            before_tool_call=self.approve,
        )
        with session, agent:
            resume_agent(agent, retry_idempotent=self.chance.random() < 0.5)
            for send in self.chance.choices([run_agent, steer, follow_up], k=3):
                text = fresh("sent")
                send(agent, text)
                self.acknowledge(text)
                self.step()
            while ask(agent, fresh("asked")) and session.waiting:
                pass


def key(message):
    """What tells a message from all others."""
    return message.tool_call_id if isinstance(message, ToolResultMessage) else message.text


def look(folder, suffix, *, ended):
    """Check a session after a death; gives what is wrong."""
    path = folder / f"chat{suffix}"
    if not path.exists():  # killed before it was made
        return (
            []
            if not (folder / "acks").exists() or not (folder / "acks").read_text()
            else ["no file"]
        )
    wrong = []
    with Session.open(path) as session:
        messages, entries = session.messages, session.entries()
        if ended and session.interrupted:
            wrong.append("the last run did not end")
        if ended and session.waiting:
            wrong.append(f"waits still: {session.waiting}")
    wrong += check([m for m in messages if not getattr(m, "failed", False)])
    results = Counter(m.tool_call_id for m in messages if isinstance(m, ToolResultMessage))
    made = Counter(c.id for m in messages if isinstance(m, AssistantMessage) for c in m.tool_calls)
    if results != made:
        wrong.append(f"calls {made} have results {results}")
    kept = Counter(
        key(entry.body.message)
        for entry in entries
        if isinstance(entry.body, (MessageBody, QueuedBody))
    )
    delivered = Counter(e.body.queued_id for e in entries if isinstance(e.body, DeliveredBody))
    acknowledged = set(lines(folder / "acks"))
    wrong += [f"{text!r} is there {kept[text]} times" for text in acknowledged if kept[text] != 1]
    wrong += [
        f"entry {n} is delivered {count} times" for n, count in delivered.items() if count > 1
    ]
    effects = Counter(lines(folder / "effects"))
    wrong += [
        f"{call_id} happened {count} times" for call_id, count in effects.items() if count > 1
    ]
    return wrong + wrongly_closed(messages, effects)


def wrongly_closed(messages, effects):
    """Give what is wrong with what was said of calls that were interrupted."""
    wrong = []
    closed = {
        m.tool_call_id: m.details["started"]
        for m in messages
        if isinstance(m, ToolResultMessage) and m.details.get("interrupted")
    }
    for call_id, started in closed.items():
        if not started and effects[call_id]:
            wrong.append(f"{call_id} happened, and is said not to have been run")
    for answer in messages:
        made = answer.tool_calls if isinstance(answer, AssistantMessage) else ()
        unknown = [c.id for c in made if c.name != "put" and closed.get(c.id)]
        if len(unknown) > 1 and "alone" in {c.name for c in made}:
            wrong.append(f"{unknown} ran one after another, and yet are all of unknown outcome")
    return wrong


def lines(path):
    """The whole lines of a file."""
    return path.read_text().splitlines() if path.exists() else []


def fork(act, folder):
    """Do something in a child; gives its process id and a pipe that ends with it."""
    read, write = os.pipe()
    pid = os.fork()
    if pid:
        os.close(write)
        return pid, read
    code = 1
    try:
        act()
        code = 0
    except BaseException:
        (folder / "error").write_text(traceback.format_exc())
    os._exit(code)


def death(act, folder, after_s):
    """Let a child live for so long at most, and kill it; gives whether it was killed, or fails where it failed."""
    pid, pipe = fork(act, folder)
    ended = bool(select.select([pipe], [], [], after_s)[0])
    if not ended:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    os.close(pipe)
    if os.waitstatus_to_exitcode(status) > 0:
        raise AssertionError((folder / "error").read_text())
    return os.waitstatus_to_exitcode(status) < 0


def one_session(folder, suffix, chance):
    """Kill one session's agents until it had its deaths, and let the last one live; gives how often they died."""
    deaths = 0
    while deaths < KILLS_EACH:
        by_itself = chance.random() < 0.5
        life = Life(folder, suffix, random.Random(chance.random()), dies=by_itself)
        after_s = 5.0 if by_itself else chance.random() * LIFE_S
        deaths += death(life.live, folder, after_s)
        for end in (life.acks, life.effects):
            os.close(end)
        report(look(folder, suffix, ended=False), folder)
    life = Life(folder, suffix, random.Random(chance.random()), dies=False)
    if death(life.live, folder, 30.0):
        raise AssertionError(f"the resumed run did not end: {folder}")
    report(look(folder, suffix, ended=True), folder)
    return deaths


def report(wrong, folder):
    """Fail where something is wrong, and say where the session is."""
    if wrong:
        kept = pathlib.Path(tempfile.mkdtemp(prefix="crash-"))
        for path in folder.iterdir():
            (kept / path.name).write_bytes(path.read_bytes())
        raise AssertionError("\n".join([f"in {kept}:", *wrong]))


def run(kills, seed, suffixes, *, seconds=None):
    """Kill agents so often; gives figures.

    Args:
        kills: how often at least, over all kinds of sessions.
        seed: of all choices.
        suffixes: the kinds of sessions.
        seconds: stop after so long, whatever the number; None: never.
    """
    chance = random.Random(seed)
    begun, deaths, sessions = time.monotonic(), Counter(), 0
    while sum(deaths.values()) < kills:
        for suffix in suffixes:
            with tempfile.TemporaryDirectory() as name:
                deaths[suffix] += one_session(pathlib.Path(name), suffix, chance)
            sessions += 1
        if seconds is not None and time.monotonic() - begun > seconds:
            break
    return {"deaths": deaths, "sessions": sessions, "seconds": round(time.monotonic() - begun, 1)}


SUFFIXES = {"jsonl": ".jsonl", "sqlite": ".db"}

if __name__ == "__main__":
    # That what a kill cut is dropped is said in a warning, and is no news here.
    logging.getLogger("yiemagent.sessions").setLevel(logging.ERROR)
    chosen = [SUFFIXES[name] for name in sys.argv[3:]] or list(SUFFIXES.values())
    print(json.dumps(run(int(sys.argv[1]), int(sys.argv[2]), chosen)))
