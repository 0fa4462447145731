"""Reading events of which this build may not have the schemas, with those that the log knows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias, TypeVar

from dalsegno.errors import StoreDamaged

T = TypeVar("T")

Learn: TypeAlias = Callable[[], int]
"""Asks for schemas that are not known here; how many were new."""


def once_more(read: Callable[[], T], learn: Learn) -> T:
    """What ``read`` gives; where it meets an event that cannot be read, what it gives behind learning."""
    try:
        return read()
    except StoreDamaged:
        if not learn():
            raise
        return read()


def going_on(read: Callable[[int], Iterator[T]], learn: Learn) -> Iterator[T]:
    """What ``read(0)`` gives, one by one; where it meets an event that cannot be read, once from ``read(count)`` on,
    behind so many that were given."""
    done, asked = 0, False
    while True:
        try:
            for each in read(done):
                yield each
                done += 1
        except StoreDamaged:
            if asked or not learn():
                raise
            asked = True
        else:
            return
