"""Who reports verdicts from outside: a program such as a test run, a function, or what other packages register.

An entry point of the group ``dalsegno.reporters`` names a function of one mapping of settings that gives a Reporter.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from dalsegno.errors import Failed
from dalsegno.harness import loading
from dalsegno.orchestration.ports import Reporter, Verdict

GROUP: Final = "dalsegno.reporters"


class ProgramSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``command``: the program and its arguments; no shell. ``output_bytes``: kept of the end of what it says."""

    command: list[str]
    folder: str = "."
    timeout_seconds: float = 600.0
    output_bytes: int = 32 << 10


class Program:
    """Fills ``Reporter``: runs a program in a folder, with the target on its standard input. Exit code 0 is PASS,
    another one REJECT; a program that does not start, is killed or takes too long is an ERROR. The end of its output is
    the evidence. It is told of the session by DALSEGNO_SESSION_ID, DALSEGNO_VALIDATION_ID and DALSEGNO_VALIDATOR. What
    it has started in its process group ends with it."""

    def __init__(self, settings: ProgramSettings) -> None:
        if not settings.command:
            raise _wrong("program", "an empty command")
        self._settings = settings

    def report(self, session_id: str, validation_id: str, validator: str, target: bytes) -> Verdict:
        told = {
            "DALSEGNO_SESSION_ID": session_id,
            "DALSEGNO_VALIDATION_ID": validation_id,
            "DALSEGNO_VALIDATOR": validator,
        }
        # Files and not pipes: neither a program that reads nothing nor one that leaves others behind can block us.
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as said:
            given.write(target)
            given.seek(0)
            try:
                running = subprocess.Popen(
                    self._settings.command,
                    cwd=self._settings.folder,
                    env={**os.environ, **told},
                    stdin=given,
                    stdout=said,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except (OSError, ValueError) as error:
                return Verdict("ERROR", label="not started", evidence=(str(error).encode(),))
            try:
                code = running.wait(self._settings.timeout_seconds)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(running.pid, signal.SIGKILL)
                running.wait()
            evidence = (self._end_of(said),)
        if code is None:
            return Verdict("ERROR", label=f"no end in {self._settings.timeout_seconds:g} s", evidence=evidence)
        if code < 0:
            return Verdict("ERROR", label=f"killed by signal {-code}", evidence=evidence)
        return Verdict("PASS" if code == 0 else "REJECT", label=f"exit code {code}", evidence=evidence)

    def _end_of(self, said: IO[bytes]) -> bytes:
        size = said.seek(0, os.SEEK_END)
        said.seek(max(0, size - self._settings.output_bytes))
        return said.read()


class Function:
    """Fills ``Reporter`` with a function of session id, validation id, name of the validator, and target."""

    def __init__(self, function: Callable[[str, str, str, bytes], Verdict]) -> None:
        self._function = function

    def report(self, session_id: str, validation_id: str, validator: str, target: bytes) -> Verdict:
        """What the function raises, or returns that is no Verdict, is an ERROR that says so."""
        try:
            verdict = self._function(session_id, validation_id, validator, target)
        except (Exception, SystemExit) as error:
            return Verdict("ERROR", label="it raised", evidence=(f"{type(error).__name__}: {error}".encode(),))
        if not isinstance(verdict, Verdict):
            return Verdict("ERROR", label=f"it returned a {type(verdict).__name__}")
        return verdict


def open_reporter(name: str, settings: Mapping[str, Any]) -> Reporter:
    """``program``; ``module:function`` or ``file.py:function``; or the name of an entry point. Raises Failed,
    NotFound."""
    if loading.is_code(name):
        function = loading.attribute(name)
        if settings or not callable(function):
            raise _wrong(name, "settings" if settings else f"a {type(function).__name__}")
        return Function(function)
    opened: Reporter = loading.one_of(loading.installed(GROUP, {"program": _program}), name, GROUP, "reporter")(
        settings
    )
    return opened


def _program(settings: Mapping[str, Any]) -> Program:
    try:
        read = msgspec.convert(settings, ProgramSettings)
    except msgspec.ValidationError as error:
        raise _wrong("program", str(error)) from error
    if not Path(read.folder).is_dir():
        raise _wrong("program", f"{read.folder} is no folder")
    return Program(read)


def _wrong(name: str, found: str) -> Failed:
    return Failed(
        f"the reporter {name}: {found}",
        wanted=f"{', '.join(ProgramSettings.__struct_fields__)} of a program, or a function without settings",
        todo="correct it as docs/harness.md shows",
        reporter=name,
    )
