"""What tests of sessions are given."""

from __future__ import annotations

import pytest

from tests.sessions.stores import FILES, new_session


@pytest.fixture(params=["memory", *FILES])
def session(request, tmp_path):
    """An empty session over each store."""
    with new_session(request.param, tmp_path) as made:
        yield made
