"""The versions of the protocol and their eras."""

from __future__ import annotations

import pytest

from yiemagent.mcp import versions


@pytest.mark.parametrize("version", [*versions.STATELESS_VERSIONS, "2027-01-01"])
def test_the_newest_versions_are_stateless(version):
    """2026-07-28 and what comes after it belong to the stateless era."""
    assert versions.is_stateless(version)


@pytest.mark.parametrize("version", versions.HANDSHAKE_VERSIONS)
def test_the_older_versions_shake_hands(version):
    """What was published before opens with a handshake."""
    assert not versions.is_stateless(version)


def test_the_newest_version_of_both_is_taken():
    """Two sides meet at the newest version that both know, or not at all."""
    assert (
        versions.newest_common(versions.HANDSHAKE_VERSIONS, ["2024-11-05", "2025-06-18"])
        == "2025-06-18"
    )
    assert versions.newest_common(versions.HANDSHAKE_VERSIONS, ["2026-07-28"]) is None
