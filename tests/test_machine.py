"""The six-state channel machine: every view has a state and an action."""

from __future__ import annotations

import itertools

import pytest

from yiemagent.machine import ROWS, Action, State, View, classify, decide

RUNS = ("none", "running", "done")
STOPPING = ("no", "drain", "now")
ALL_VIEWS = [
    View(run, has_input, has_follow_up, stopping)
    for run, has_input, has_follow_up, stopping in itertools.product(
        RUNS, (False, True), (False, True), STOPPING
    )
]

REFERENCE = [
    (View("none"), State.IDLE, Action.WAIT),
    (View("none", has_input=True), State.STARTING, Action.START),
    (View("running"), State.RUNNING, Action.WAIT),
    (View("running", has_input=True), State.RUNNING_INPUT_WAITS, Action.WAIT),
    (View("running", has_follow_up=True), State.RUNNING_FOLLOW_UP_WAITS, Action.WAIT),
    (View("done"), State.DONE, Action.DELIVER),
]


@pytest.mark.parametrize(("view", "state", "action"), REFERENCE)
def test_the_six_states_of_the_reference(view, state, action):
    """Each of the reference's six states is recognised and acted on."""
    assert classify(view) is state
    assert decide(view) is action


@pytest.mark.parametrize("view", ALL_VIEWS)
def test_every_view_is_decided(view):
    """The machine is total: every view has one of the six states and one action."""
    assert classify(view) in State
    assert decide(view) in Action


@pytest.mark.parametrize("view", [view for view in ALL_VIEWS if view.run == "done"])
def test_a_finished_run_is_delivered_first(view):
    """Whatever waits, and even while stopping, a finished run is delivered before anything else."""
    assert decide(view) is Action.DELIVER


@pytest.mark.parametrize("view", [view for view in ALL_VIEWS if view.run == "running"])
def test_a_running_run_is_let_alone(view):
    """While a run works, the machine waits."""
    assert decide(view) is Action.WAIT


def test_follow_ups_alone_start_nothing():
    """Follow-ups left from a failed run leave the agent idle."""
    view = View("none", has_follow_up=True)

    assert classify(view) is State.IDLE
    assert decide(view) is Action.WAIT


def test_a_stopped_agent_starts_nothing():
    """A message that waits when the agent is stopped gets no run."""
    assert decide(View("none", has_input=True, stopping="now")) is Action.END


def test_a_dropped_agent_finishes_what_it_accepted():
    """An agent that nobody holds starts what waits, and ends when nothing does."""
    assert decide(View("none", has_input=True, stopping="drain")) is Action.START
    assert decide(View("none", stopping="drain")) is Action.END


def test_the_rows_name_each_state_once():
    """The table of the documentation has one row for each state, in their order."""
    assert [row.state for row in ROWS] == list(State)
