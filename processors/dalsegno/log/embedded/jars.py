"""The broker's jars: exact versions, each checked against a SHA-256 of this package, kept in the data folder.

Order for each jar: (1) the copy in the data folder, (2) Maven's folder of this user, (3) a download by jgo into a
staging folder. Whatever the source, only a file with the locked digest gets its final name, by an atomic rename; so an
interrupted download never counts, and a later start needs no network.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from dalsegno.errors import DiskFull, JarDamaged, JarsUnavailable

KAFKA_VERSION = "4.4.0"
_DOWNLOADS_AT_ONCE = 4
_REQUEST_LIMIT_SECONDS = 30


class Jar(NamedTuple):
    group: str
    artifact: str
    version: str
    size_bytes: int
    sha256: str

    @property
    def name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"

    @property
    def maven_path(self) -> Path:
        return Path(*self.group.split("."), self.artifact, self.version, self.name)


@cache
def locked_jars() -> tuple[Jar, ...]:
    """The jars of ``jars.lock``, in its order (which is the order of the class path)."""
    text = resources.files(__package__).joinpath("jars.lock").read_text("utf-8")
    jars = []
    for line in text.splitlines():
        if line and not line.startswith("#"):
            coordinates, size, digest = line.split()
            group, artifact, version = coordinates.split(":")
            jars.append(Jar(group, artifact, version, int(size), digest))
    return tuple(jars)


def class_path(folder_name: str) -> str:
    """The class path relative to the parent of the jar folder, so that no character of that path can break it."""
    return os.pathsep.join(f"{folder_name}/{jar.name}" for jar in locked_jars())


def ensure_jars(folder: Path, announce: Callable[[str], None]) -> None:
    """Make sure that ``folder`` holds every locked jar with its digest.

    Raises JarsUnavailable (offline, extra missing), JarDamaged (a source served other bytes), DiskFull.
    """
    missing = [jar for jar in locked_jars() if _digest_of(folder / jar.name) != jar.sha256]
    if not missing:
        return
    with _disk_errors(folder, sum(jar.size_bytes for jar in missing)):
        folder.mkdir(parents=True, exist_ok=True)
        to_fetch = [jar for jar in missing if not _take(_maven_folder() / jar.maven_path, jar, folder)]
        if to_fetch:
            megabytes = sum(jar.size_bytes for jar in to_fetch) / 1e6
            announce(f"fetching Apache Kafka {KAFKA_VERSION}: {len(to_fetch)} files, {megabytes:.1f} MB, once")
            _fetch(to_fetch, folder)


def _fetch(jars: list[Jar], folder: Path) -> None:
    if importlib.util.find_spec("jgo") is None:
        raise JarsUnavailable(
            f"{len(jars)} jars of Apache Kafka {KAFKA_VERSION} are not in {folder}, and jgo, to fetch them, is missing",
            todo="pip install 'dalsegno[embedded]', or set DALSEGNO_KAFKA__BOOTSTRAP_SERVERS to a broker that runs",
        )
    with (
        tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder.parent) as staging,
        ThreadPoolExecutor(_DOWNLOADS_AT_ONCE) as pool,
    ):
        list(pool.map(lambda jar: _fetch_one(jar, Path(staging), folder), jars))


def _fetch_one(jar: Jar, staging: Path, folder: Path) -> None:
    from jgo.config import GlobalSettings
    from jgo.constants import MAVEN_CENTRAL_URL
    from jgo.maven import MavenContext

    # The user's own repositories (jgo's settings file) come first: a company's mirror may be the only one reachable.
    repositories = {**GlobalSettings.load().repositories, "central": MAVEN_CENTRAL_URL}
    maven = MavenContext(repo_cache=staging, local_repos=[], remote_repos=repositories, timeout=_REQUEST_LIMIT_SECONDS)
    try:
        fetched = maven.project(jar.group, jar.artifact).at_version(jar.version).artifact().resolve()
    except OSError as error:  # requests' errors are OSErrors too
        if error.errno == errno.ENOSPC:
            raise
        raise _unavailable(jar, error) from error
    except (RuntimeError, ValueError) as error:
        raise _unavailable(jar, error) from error
    if not _take(fetched, jar, folder):
        raise JarDamaged(
            f"{jar.name} was fetched with SHA-256 {_digest_of(fetched)}",
            wanted=jar.sha256,
            todo="try again; if it stays so, the repository or a proxy on the way serves another file: do not use it",
            jar=jar.name,
        )
    # The next data folder of this user then needs no network. Where that folder cannot be written, nothing is lost.
    with contextlib.suppress(OSError):
        shared = _maven_folder() / jar.maven_path
        if not shared.exists():
            shared.parent.mkdir(parents=True, exist_ok=True)
            _take(fetched, jar, shared.parent)


def _take(source: Path, jar: Jar, folder: Path) -> bool:
    """Copy ``source`` to ``folder`` under the jar's name if its digest is the locked one; False if it is not."""
    if not source.is_file():
        return False
    part = folder / f".{jar.name}.{os.getpid()}.part"
    try:
        shutil.copyfile(source, part)
        if _digest_of(part) != jar.sha256:
            return False
        os.replace(part, folder / jar.name)
        return True
    finally:
        part.unlink(missing_ok=True)


def _digest_of(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return None


def _maven_folder() -> Path:
    configured = os.environ.get("M2_REPO")
    return Path(configured) if configured else Path.home() / ".m2" / "repository"


def _unavailable(jar: Jar, error: Exception) -> JarsUnavailable:
    return JarsUnavailable(
        f"{jar.name} of Apache Kafka {KAFKA_VERSION} could not be fetched ({type(error).__name__}: {str(error)[:200]})",
        wanted="a network connection to a Maven repository for the first start",
        todo="connect once and start again (later starts need no network), copy the folder 'broker/jars' from another"
        " data folder, or set DALSEGNO_KAFKA__BOOTSTRAP_SERVERS to a broker that runs",
        jar=jar.name,
    )


@contextlib.contextmanager
def _disk_errors(folder: Path, needed_bytes: int) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise DiskFull(
            f"no space left at {folder} for the broker's jars",
            wanted=f"{needed_bytes / 1e6:.0f} MB",
            todo="free some space and start again, or set DALSEGNO_DATA to a folder on another disk",
            folder=str(folder),
            needed_bytes=needed_bytes,
        ) from error
