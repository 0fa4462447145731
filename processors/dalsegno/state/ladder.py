"""The ladder: how a session's rows stood at every 256th event, kept as the versions that later windows replaced. Pure.

A session's events fall into *windows* of 256; the last event of a window is a *rung*. Every row carries the window of
its last change. A row that a window changes for the first time leaves an *image* behind if an older window wrote it:
its version as of the rung below. So at the rung that closes window w a row was

- its image with the lowest window above w, if there is one, else the stored row;
- and if that version's own window is above w, it was not there.

A row that never changes again costs four bytes, and a session of 256 events or fewer has no image at all. Nothing here
depends on how the events were batched: what is changed is what was put, whether or not its bytes differ.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from dalsegno.model.records import FIRST_SEQ
from dalsegno.projections.base import HeadFacts
from dalsegno.state.keys import LADDER

WINDOW_EVENTS: Final = 256
"""Of the product. Rows of one size are of no use to a build with another: with a new one goes a new ``FORMAT``."""
LEAST_WINDOW_EVENTS: Final = 2
"""Of tests. The second event of a fork is no rung, since its lifecycle begins there."""
NO_WINDOW: Final = -1
"""Of a row that is not there, or that is of no session."""
MARK_BYTES: Final = 4
_WINDOW_BYTES: Final = 8

UNTOLD: Final = HeadFacts(0, None, 0, None, None, 0, 0)
"""What the projections are told of the path's end at a rung: nothing. What is held or superseded depends on records
that come in any order; images must follow from the path alone. Readers tell them what was so at the seq they look at.
"""


class Rung(msgspec.Struct, array_like=True):
    """The lifecycle at a rung, and the hash of the event there. ``state`` is read as a plain list, as in the head."""

    state: Any
    hash: bytes


read_rung: Final = msgspec.msgpack.Decoder(Rung).decode


def window_of(seq: int, window_events: int) -> int:
    """The window of the event at this seq; the first one where there is no event yet."""
    return max(0, seq - FIRST_SEQ) // window_events


def mark_of(window: int) -> bytes:
    """What stands before a row's own bytes."""
    return window.to_bytes(MARK_BYTES, "big")


def marked_window(raw: bytes) -> int:
    """The window of a stored row's last change."""
    return int.from_bytes(raw[:MARK_BYTES], "big")


def image_key(row_key: bytes, window: int) -> bytes:
    """Where the version of a row stands that window ``window`` was the first to change."""
    return LADDER + row_key + window.to_bytes(_WINDOW_BYTES, "big")


def split_image(key: bytes) -> tuple[bytes, int]:
    """Row key and window of an image's key."""
    return key[len(LADDER) : -_WINDOW_BYTES], int.from_bytes(key[-_WINDOW_BYTES:], "big")


def images_above(row_key: bytes, window: int) -> tuple[bytes, bytes]:
    """From where to where the images of one row stand whose windows are above this one. Windows begin with a zero byte
    and parts of ids do not, so no other row's images stand between them."""
    return image_key(row_key, window + 1), LADDER + row_key + b"\x01"
