"""Kafka's data folder gets its cluster id once; a crash in the middle of that is put right by the next start."""

from __future__ import annotations

import base64
import os
import re
import shutil
import subprocess
import uuid
from pathlib import Path

from dalsegno.errors import BrokerStartFailed, WaitTimeout
from dalsegno.log.embedded.config import JVM_OPTIONS, LOG_FOLDER, properties
from dalsegno.log.embedded.failures import explain
from dalsegno.log.embedded.jars import class_path
from dalsegno.storage.files import write_atomically

_FORMAT_LIMIT_SECONDS = 60
_METADATA_TOPIC = "__cluster_metadata-0"


def ensure_formatted(folder: Path, java: Path, known_cluster_id: str | None) -> str:
    """The cluster id of the data folder, which is formatted if it holds nothing yet.

    ``known_cluster_id``: what a finished format of an earlier start left in ``broker.json``; None if there was none.
    Raises BrokerStartFailed where topics lie in a folder that does not say which cluster they are of.
    """
    data = folder / LOG_FOLDER
    written, topics = _cluster_id_of(data), _topics_in(data)
    if written is not None and (known_cluster_id is not None or topics):
        return written  # where broker.json was lost or is older, Kafka's own file is the truth
    if topics:
        raise BrokerStartFailed(
            f"{data} holds topics ({', '.join(topics[:5])}), but its meta.properties is missing or damaged",
            wanted="a folder that says which cluster its topics belong to",
            todo=f"restore meta.properties from a backup, or move {data} away to begin with an empty log",
            folder=str(data),
        )
    # Nothing, or half of a format: no topic can be in it, since a broker starts only after a whole one.
    shutil.rmtree(data, ignore_errors=True)
    cluster_id = _new_cluster_id()
    _run_format(folder, java, cluster_id)
    return cluster_id


def _run_format(folder: Path, java: Path, cluster_id: str) -> None:
    # The ports in this file are written into the quorum's first state; the real start updates them.
    write_atomically(folder / "format.properties", properties(1, 2, {}).encode())
    log_file = folder / "broker.log"
    tool = ["kafka.tools.StorageTool", "format", "--standalone", "-t", cluster_id, "-c", "format.properties"]
    try:
        with log_file.open("ab") as log:
            done = subprocess.run(
                [str(java), *JVM_OPTIONS, "-cp", class_path("jars"), *tool],
                cwd=folder,
                env={**os.environ, "LC_ALL": "C.UTF-8"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                timeout=_FORMAT_LIMIT_SECONDS,
            )
    except subprocess.TimeoutExpired:
        raise WaitTimeout(
            f"formatting {folder} took longer than {_FORMAT_LIMIT_SECONDS} s", todo=f"see {log_file}, and start again"
        ) from None
    if done.returncode != 0:
        raise explain(log_file, 0)


def _new_cluster_id() -> str:
    """A random id in Kafka's form (base64 of a UUID); not with '-' first, which its tool reads as an option."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode("ascii").rstrip("=")
        if not text.startswith("-"):
            return text


def _cluster_id_of(data: Path) -> str | None:
    try:
        text = (data / "meta.properties").read_text("latin-1")
    except FileNotFoundError:
        return None
    match = re.search(r"^cluster\.id=(\S+)$", text, re.MULTILINE)
    return match.group(1) if match and (data / _METADATA_TOPIC).is_dir() else None


def _topics_in(data: Path) -> list[str]:
    if not data.is_dir():
        return []
    return sorted(
        entry.name
        for entry in data.iterdir()
        if entry.is_dir() and re.search(r"-\d+$", entry.name) and entry.name != _METADATA_TOPIC
    )
