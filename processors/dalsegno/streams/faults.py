"""Ending the process at a numbered step of a protocol, which is how the tests show that a crash there harms nothing.

``DALSEGNO_TEST_KILL_AT=<step>[:<nth>]`` names the step, for example ``emit.3:2`` for the second time that step 3 of the
emitter was done. Without the variable nothing happens.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping

from dalsegno.errors import Usage
from dalsegno.streams.config import no_fault

KILL_VARIABLE = "DALSEGNO_TEST_KILL_AT"


def fault_from_environment(environment: Mapping[str, str] = os.environ) -> Callable[[str], None]:
    """The ``fault`` of a worker started by hand or by a test. Raises Usage for a count that is no number."""
    wanted = environment.get(KILL_VARIABLE, "")
    if not wanted:
        return no_fault
    step, _, nth = wanted.partition(":")
    if nth and not nth.isdigit():
        raise Usage(f"{KILL_VARIABLE}={wanted!r}", wanted="<step>[:<nth>]", todo="correct or unset it")
    left = int(nth or "1")

    def kill(done: str) -> None:
        nonlocal left
        if done != step:
            return
        left -= 1
        if left == 0:
            # No handler runs and nothing is flushed: what a crash leaves.
            os.kill(os.getpid(), signal.SIGKILL)

    return kill
