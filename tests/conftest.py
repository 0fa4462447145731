"""Shared fixtures. One embedded broker serves the whole session; every test has a topic prefix of its own."""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from dalsegno.log.kafka import KafkaConfig
    from s3_lab import S3Server

pytest_plugins = ["dalsegno.testing.pytest_plugin", "pytester"]

# Compaction must be something that a test can wait for: the cleaner's back-off is 15 s by default.
BROKER_OVERRIDES = {"log.cleaner.backoff.ms": "500", "log.retention.check.interval.ms": "1000"}

# Of a property with a hundred times the examples; the limit of every other test would end it in the middle.
LONG_PROPERTY_SECONDS = 4 * 3600

settings.register_profile(
    "ci", max_examples=300, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("long", settings.get_profile("ci"), max_examples=30_000)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="full counts: tests marked long, a hundred times the examples")


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("long" if config.getoption("--long") else "ci")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if not config.getoption("--long"):
            if item.get_closest_marker("long"):
                item.add_marker(pytest.mark.skip(reason="full counts: ./run test --long"))
        elif "property" in item.path.parts:
            item.add_marker(pytest.mark.timeout(LONG_PROPERTY_SECONDS))


@dataclass(frozen=True)
class KafkaForTest:
    """A broker that runs, and a prefix that no other test uses."""

    config: KafkaConfig
    prefix: str

    def topics(self, *, partitions: int = 4, projections: Iterable[tuple[str, int]] | None = None) -> None:
        """Create this prefix's topics. ``projections``: name and version of those that get one; None: the built-in."""
        from dalsegno.log.topics import apply
        from dalsegno.projections.registry import built_in

        if projections is None:
            projections = [(each.name, each.version) for each in built_in() if each.public]
        apply(self.config, self.prefix, partitions=partitions, projections=projections)


@pytest.fixture(scope="module")
def small_windows() -> Iterator[None]:
    """Short sessions pass rungs of the ladder, too."""
    from shard_lab import DEFAULTS, FEW_EVENTS

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(DEFAULTS, "window_events", FEW_EVENTS)
        yield


@pytest.fixture(scope="session")
def broker_data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The data folder of the session's embedded broker, which runs until the session ends."""
    from dalsegno.log import embedded

    data = tmp_path_factory.mktemp("broker")
    embedded.start(data, java=os.environ.get("DALSEGNO_JAVA"), overrides=BROKER_OVERRIDES)
    try:
        yield data
    finally:
        embedded.stop(data)


@pytest.fixture(scope="session")
def bootstrap(broker_data: Path) -> str:
    from dalsegno.log import embedded

    found = embedded.status(broker_data).bootstrap
    assert found is not None
    return found


@pytest.fixture
def kafka(bootstrap: str) -> KafkaForTest:
    from dalsegno.log.kafka import KafkaConfig

    return KafkaForTest(KafkaConfig(bootstrap), f"t{uuid.uuid4().hex[:12]}")


@pytest.fixture
def open_tmp_path() -> Iterator[Path]:
    """A folder that other users may enter: pytest's own is closed to them, again at every start of a pytest."""
    made = Path(tempfile.mkdtemp(prefix="dalsegno-test-"))
    made.chmod(0o755)
    yield made
    for folder, _, _ in os.walk(made):
        Path(folder).chmod(0o755)
    shutil.rmtree(made)


@pytest.fixture(scope="session")
def server() -> Iterator[S3Server]:
    """The session's S3 server; every test makes a bucket of its own in it."""
    from s3_lab import s3_server

    with s3_server() as found:
        yield found
