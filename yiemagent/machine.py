"""The six-state channel machine of an agent: what state the channels and the run are in, and what to do next.

Pure: a `View` goes in, a `State` and an `Action` come out. The agent's thread makes a view whenever its doorbell
rings and does what `decide` says, until that is to wait. Total over all views, so no combination of channels and run
is ever unknown.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Literal

import attrs

from yiemagent.record import Record

__all__ = ["ROWS", "Action", "Row", "State", "View", "classify", "decide"]


class State(IntEnum):
    """The six states of the reference, by their numbers."""

    IDLE = 1
    STARTING = 2
    RUNNING = 3
    RUNNING_INPUT_WAITS = 4
    RUNNING_FOLLOW_UP_WAITS = 5
    DONE = 6


class Action(Enum):
    """What the agent's thread does next."""

    WAIT = "wait"
    START = "start"
    DELIVER = "deliver"
    END = "end"


@attrs.frozen(eq=False, repr=False)
class View(Record):
    """What the agent's thread sees when it looks.

    Args:
        run: "none", "running", or "done": ended and not yet delivered.
        has_input: whether a message waits for a run of its own.
        has_follow_up: whether a message waits to join a run.
        stopping: "no"; "drain": end when all that was accepted is done; "now": start nothing more.
    """

    run: Literal["none", "running", "done"] = "none"
    has_input: bool = False
    has_follow_up: bool = False
    stopping: Literal["no", "drain", "now"] = "no"


@attrs.frozen(eq=False, repr=False)
class Row(Record):
    """One state in words, as the documentation shows it."""

    state: State
    run: str
    input: str
    follow_up: str
    does: str


ROWS = (
    Row(State.IDLE, "none", "empty", "any", "waits at the doorbell, uses no CPU"),
    Row(State.STARTING, "none", "has message", "any", "takes the message and starts a run"),
    Row(State.RUNNING, "running", "empty", "empty", "does the run"),
    Row(
        State.RUNNING_INPUT_WAITS,
        "running",
        "has message",
        "any",
        "the message waits for its own run",
    ),
    Row(
        State.RUNNING_FOLLOW_UP_WAITS,
        "running",
        "empty",
        "has message",
        "the run takes the message in when it would stop",
    ),
    Row(State.DONE, "done", "any", "any", "delivers the answer, then looks again"),
)


def classify(view: View) -> State:
    """Give the state that a view is in.

    Follow-ups that wait while no run is going on are left from a run that failed: they start nothing, the next run
    takes them in, and the agent counts as idle. With both kinds waiting beside a run, input is looked at first.
    """
    if view.run == "done":
        return State.DONE
    if view.run == "none":
        return State.STARTING if view.has_input else State.IDLE
    if view.has_input:
        return State.RUNNING_INPUT_WAITS
    return State.RUNNING_FOLLOW_UP_WAITS if view.has_follow_up else State.RUNNING


def decide(view: View) -> Action:
    """Give what to do in a view."""
    state = classify(view)
    if state is State.DONE:
        return Action.DELIVER
    if state is State.STARTING and view.stopping != "now":
        return Action.START
    if view.run == "none" and view.stopping != "no":
        return Action.END
    return Action.WAIT
