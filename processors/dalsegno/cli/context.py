"""What every command is given: the settings, and the things that follow from them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import click

from dalsegno.log.kafka import KafkaConfig
from dalsegno.settings import Settings
from dalsegno.storage.object_store import Store
from dalsegno.storage.opening import open_store


@dataclass
class Context:
    """Settings of this process and how its output is wanted."""

    settings: Settings
    flags: dict[str, Any] = field(default_factory=dict)
    output: str = "text"
    time_format: str = "iso"
    progress: str = "auto"

    @property
    def prefix(self) -> str:
        return self.settings.prefix

    @property
    def data(self) -> Path:
        return self.settings.data

    @cached_property
    def store(self) -> Store:
        """Where snapshots and blobs lie."""
        return open_store(self.settings.store_location, self.settings.store_options)

    @property
    def embedded(self) -> bool:
        """True where no Kafka is configured, so that the embedded broker of the data folder is used."""
        return not self.settings.kafka.bootstrap_servers

    @cached_property
    def kafka(self) -> KafkaConfig:
        """The Kafka to talk to; starts the embedded broker if no other is configured."""
        servers = self.settings.kafka.bootstrap_servers
        if self.embedded:
            from dalsegno.cli.output import note
            from dalsegno.log.embedded import start

            # Told, for it stays when the command has ended, and in another folder it is another broker.
            servers = start(self.data, java=self.settings.java, announce=note)
        return KafkaConfig(bootstrap_servers=servers, options=dict(self.settings.kafka.options))


pass_context = click.make_pass_decorator(Context)
