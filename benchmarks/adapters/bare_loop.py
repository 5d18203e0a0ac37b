"""The floor's client, reading the way yiemagent does: `read1`, split at line ends, `json.loads`."""

from __future__ import annotations

import functools

from adapters import floor

READ_BYTES = 65_536


def lines(session, url, body):
    with session.post(url, json=body, stream=True) as response:
        rest = b""
        while data := response.raw.read1(READ_BYTES, decode_content=True):
            *whole, rest = (rest + data).split(b"\n")
            yield from whole


client = functools.partial(floor.client, lines=lines)
reader = functools.partial(floor.reader, lines=lines)
