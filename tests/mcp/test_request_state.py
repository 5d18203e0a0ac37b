"""States that go through the client and come back as they went."""

from __future__ import annotations

import pytest

from yiemagent.mcp.request_state import StateSeal
from yiemagent.mcp.server_protocol import RpcFailure


def test_a_state_opens_for_what_it_was_made_for():
    """The facts come back to the same request of the same principal."""
    seal = StateSeal()
    state = seal.seal({"a": ["ü", 1]}, about="call", principal="ann")

    assert seal.open(state, about="call", principal="ann") == {"a": ["ü", 1]}


@pytest.mark.parametrize(
    ("about", "principal"), [("other", "ann"), ("call", "bob"), ("call", None)]
)
def test_a_state_is_good_for_nothing_else(about, principal):
    """Another request, another principal or none is refused."""
    seal = StateSeal()
    state = seal.seal({}, about="call", principal="ann")

    with pytest.raises(RpcFailure, match="not what this server gave"):
        seal.open(state, about=about, principal=principal)


def test_a_state_that_was_changed_is_refused():
    """A changed character anywhere, a longer text and what is no state at all are refused."""
    seal = StateSeal()
    state = seal.seal({"a": 1}, about="call", principal=None)
    changed = [
        state[:place] + ("A" if state[place] != "A" else "B") + state[place + 1 :]
        for place in range(0, len(state) - 1, 7)
    ]

    for wrong in [*changed, state + "-TAMPERED", state + "AAAA", "", "!", "ü", None, 5, {}]:
        with pytest.raises(RpcFailure):
            seal.open(wrong, about="call", principal=None)


def test_a_state_grows_old():
    """After its time it is refused in words of its own."""
    now = [1000.0]
    seal = StateSeal(max_age_s=10, clock=lambda: now[0])
    state = seal.seal({}, about="call", principal=None)
    now[0] += 11

    with pytest.raises(RpcFailure, match="too old"):
        seal.open(state, about="call", principal=None)


def test_servers_share_states_by_their_key():
    """Another server opens a state where it has the same key, and only there."""
    state = StateSeal(b"k" * 32).seal({"a": 1}, about="call", principal=None)

    assert StateSeal(b"k" * 32).open(state, about="call", principal=None) == {"a": 1}
    with pytest.raises(RpcFailure):
        StateSeal().open(state, about="call", principal=None)
