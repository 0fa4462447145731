"""An S3 server in this process, and stores in it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple
from urllib.request import Request, urlopen

from dalsegno.storage.object_store import Store
from dalsegno.storage.opening import open_store

SECRET = "nobody-may-see-this-key"
LIMIT_SECONDS = 30


class S3Server(NamedTuple):
    endpoint: str

    @property
    def options(self) -> dict[str, str]:
        return {
            "endpoint": self.endpoint, "region": "us-east-1", "access_key_id": "id", "secret_access_key": SECRET,
        }  # fmt: skip

    def bucket(self) -> str:
        """A new bucket; its location."""
        name = f"b{uuid.uuid4().hex}"
        urlopen(Request(f"{self.endpoint}/{name}", method="PUT"), timeout=LIMIT_SECONDS).close()
        return f"s3://{name}"

    def store(self, location: str | None = None) -> Store:
        return open_store(location or f"{self.bucket()}/deep/place", self.options)


@contextmanager
def s3_server() -> Iterator[S3Server]:
    import logging

    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield S3Server(f"http://{host}:{port}")
    finally:
        server.stop()
