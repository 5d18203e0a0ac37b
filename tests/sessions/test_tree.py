"""The tree that entries form."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yiemagent.errors import InvalidJson
from yiemagent.messages import UserMessage
from yiemagent.sessions.bodies import (
    CustomBody,
    DeliveredBody,
    LabelBody,
    LeafBody,
    MessageBody,
    PartialBody,
    QueuedBody,
    UnknownBody,
    WithdrawnBody,
)
from yiemagent.sessions.entries import Entry
from yiemagent.sessions.tree import Tree

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
HI = UserMessage("hi", NOON)


def grown(*bodies):
    """A tree in which each entry in the tree follows the leaf."""
    tree = Tree()
    for body in bodies:
        tree.add(Entry(tree.next_id, None if body.is_side else tree.leaf_id, NOON, body))
    return tree


def ids(tree, leaf_id):
    """The path to an entry, as ids."""
    return [tree.id_at(position) for position in tree.path(leaf_id)]


def test_an_empty_tree_has_neither_leaf_nor_path():
    """Nothing is there before the first entry, and that has the id 1."""
    tree = Tree()

    assert (tree.leaf_id, tree.path(None), tree.leaves(), len(tree), tree.next_id) == (
        None,
        [],
        [],
        0,
        1,
    )


def test_entries_in_the_tree_move_the_leaf_and_others_do_not():
    """A message is the new leaf; a label, a partial and a message that waits are not."""
    tree = grown(MessageBody(HI), LabelBody(1, "x"), PartialBody(1, ()), QueuedBody("steering", HI))

    assert tree.leaf_id == 1
    assert tree.next_id == 5
    assert ids(tree, 1) == [1]


def test_the_path_goes_through_the_parents():
    """After a move of the leaf a new branch grows, and both paths can be given."""
    tree = grown(MessageBody(HI), MessageBody(HI), LeafBody(1), MessageBody(HI), MessageBody(HI))

    assert ids(tree, 5) == [1, 4, 5]
    assert ids(tree, 2) == [1, 2]
    assert tree.leaves() == [2, 5]
    assert [tree.parent_id(n) for n in (1, 2, 3, 4, 5)] == [None, 1, None, 1, 4]


def test_the_leaf_may_go_back_to_the_beginning():
    """A leaf of None begins the conversation anew, with a second root."""
    tree = grown(MessageBody(HI), LeafBody(None), MessageBody(HI))

    assert ids(tree, 3) == [3]


def test_labels_are_given_moved_and_taken():
    """The latest label of an entry holds; None takes it away."""
    tree = grown(MessageBody(HI), LabelBody(1, "a"), LabelBody(1, "b"))
    taken = grown(MessageBody(HI), LabelBody(1, "a"), LabelBody(1))

    assert tree.labels == {1: "b"}
    assert taken.labels == {}


def test_messages_wait_until_they_are_delivered_or_withdrawn():
    """What was accepted waits, in order, until it joined the conversation or was handed back."""
    tree = grown(
        QueuedBody("input", HI),
        QueuedBody("steering", HI),
        QueuedBody("follow_up", HI),
        QueuedBody("input", HI),
        DeliveredBody(2),
        WithdrawnBody((4, 4)),
    )

    assert tree.waiting == {1: "input", 3: "follow_up"}


def test_partials_are_void_once_a_message_follows():
    """What came of an answer counts as long as nothing whole stands behind the same entry."""
    tree = grown(MessageBody(HI), PartialBody(1, ()), CustomBody("note", None), PartialBody(1, ()))

    assert tree.partials(1) == [1, 3]
    tree.add(Entry(9, 1, NOON, MessageBody(HI)))
    assert tree.partials(1) == []


def test_partials_may_stand_at_the_beginning():
    """An answer may come before anything else."""
    tree = grown(PartialBody(None, ()))

    assert tree.partials(None) == [0]


def test_unknown_kinds_stand_where_they_say():
    """An entry of a newer version is followed like any other, or stands beside the tree."""
    tree = grown(UnknownBody("dream"), UnknownBody("aside", is_side=True), MessageBody(HI))

    assert ids(tree, 3) == [1, 3]
    assert [tree.kind(position) for position in range(3)] == ["dream", "aside", "message"]


@pytest.mark.parametrize(
    ("entry", "wrong"),
    [
        (Entry(2, 1, NOON, MessageBody(HI)), "2 does not count up; 3 is the least"),
        (Entry(1, 1, NOON, MessageBody(HI)), "1 does not count up"),
        (Entry(10**30, 1, NOON, MessageBody(HI)), f"id: {10**30} is more than"),
        (Entry(9, 7, NOON, MessageBody(HI)), "there is no entry 7"),
        (Entry(9, 9, NOON, MessageBody(HI)), "there is no entry 9"),
        (Entry(9, 2, NOON, MessageBody(HI)), "entry 2 stands beside the tree"),
        (Entry(9, None, NOON, LabelBody(8, "x")), "target: there is no entry 8"),
        (Entry(9, None, NOON, LeafBody(2)), "entry 2 stands beside the tree"),
        (Entry(9, None, NOON, LeafBody(5)), "there is no entry 5"),
        (Entry(9, None, NOON, PartialBody(5, ())), "there is no entry 5"),
        (Entry(9, 1, NOON, DeliveredBody(5)), "queued: there is no entry 5"),
    ],
)
def test_an_entry_that_can_not_stand_there_changes_nothing(entry, wrong):
    """An id that does not count up, and a reference to nothing, are refused."""
    tree = grown(MessageBody(HI), LabelBody(1, "a"))

    with pytest.raises(InvalidJson, match=wrong):
        tree.add(entry)

    assert (len(tree), tree.leaf_id, tree.labels) == (2, 1, {1: "a"})


def test_what_is_not_there_has_no_path():
    """A path to an unknown entry, or to one beside the tree, is refused."""
    tree = grown(MessageBody(HI), LabelBody(1, "a"))

    with pytest.raises(InvalidJson, match="there is no entry 3"):
        tree.path(3)
    with pytest.raises(InvalidJson, match="beside the tree"):
        tree.path(2)
    with pytest.raises(InvalidJson, match="there is no entry 8"):
        tree.position(8)


@given(st.lists(st.integers(0, 30), max_size=30), st.lists(st.integers(1, 3), max_size=30))
def test_every_path_is_that_of_a_plain_model(targets, gaps):
    """Whatever grows where, with gaps between the ids, a path is the walk through the parents."""
    tree, parents = Tree(), {}
    for target, gap in zip(targets, gaps, strict=False):
        known = [None, *parents]
        parent = known[target % len(known)]
        entry_id = tree.next_id + gap - 1
        tree.add(Entry(entry_id, parent, NOON, MessageBody(HI)))
        parents[entry_id] = parent

    for entry_id, parent in parents.items():
        walk, here = [], entry_id
        while here is not None:
            walk.append(here)
            here = parents[here]
        assert ids(tree, entry_id) == walk[::-1]
        assert tree.parent_id(entry_id) == parent
