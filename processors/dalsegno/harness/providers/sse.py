"""Server-sent events, as far as chat completions use them: bytes in, the data of each event out. Pure.

Source of the rules: HTML standard, section 9.2.6 "Interpreting an event stream".
"""

from __future__ import annotations


class Events:
    """Put together from chunks that may end anywhere."""

    def __init__(self) -> None:
        self._line = b""
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of the events that this chunk ends. Comments, ids and names of events carry nothing here."""
        *lines, self._line = (self._line + chunk).split(b"\n")
        return [data for line in lines if (data := self._take(line.removesuffix(b"\r"))) is not None]

    def end(self) -> bytes | None:
        """The last event, if the stream ended without the empty line behind it."""
        self._take(self._line.removesuffix(b"\r"))
        self._line = b""
        return self._take(b"")

    def _take(self, line: bytes) -> bytes | None:
        if line:
            name, _, value = line.partition(b":")
            if name == b"data":
                self._data.append(value.removeprefix(b" "))
            return None
        data, self._data = self._data, []
        return b"\n".join(data) if data else None
