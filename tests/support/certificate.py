"""A certificate for localhost that nobody but these tests trusts, and its key; both public and worthless."""

from __future__ import annotations

import pathlib

__all__ = ["CERTFILE", "KEYFILE"]

_FOLDER = pathlib.Path(__file__).with_name("tls")
CERTFILE = str(_FOLDER / "localhost.pem")
KEYFILE = str(_FOLDER / "localhost.key")
