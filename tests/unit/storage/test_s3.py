"""The store in S3: where it differs from a folder, above all in how it fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dalsegno.errors import NotPermitted, StoreUnavailable, Usage
from dalsegno.storage import s3
from dalsegno.storage.object_store import FolderStore, Store
from dalsegno.storage.opening import masked, masked_url, open_store
from s3_lab import SECRET, S3Server, s3_server


def calls(store: Store, tmp_path: Path) -> list[Callable[[], object]]:
    return [
        lambda: store.read("k"), lambda: store.info("k"), lambda: list(store.list()), lambda: store.delete("k"),
        lambda: store.put("k", b""), lambda: store.put_if_absent("k", b""), lambda: store.download("k", tmp_path / "t"),
    ]  # fmt: skip


def test_a_missing_bucket_is_an_error_of_every_question(server: S3Server, tmp_path: Path) -> None:
    """A missing bucket answers 404 as a missing object does; taken for one, a state would look empty."""
    for number in range(len(calls(server.store("s3://nobody/p"), tmp_path))):
        fresh = server.store("s3://nobody/p")
        with pytest.raises(StoreUnavailable, match="there is no bucket of s3://nobody/p"):
            calls(fresh, tmp_path)[number]()


def test_a_bucket_that_goes_is_noticed(server: S3Server, tmp_path: Path) -> None:
    from urllib.request import Request, urlopen

    location = server.bucket()
    store = server.store(location)
    assert store.read("k") is None
    urlopen(Request(f"{server.endpoint}/{location.removeprefix('s3://')}", method="DELETE"), timeout=30).close()
    for call in (store.put, store.put_if_absent):
        with pytest.raises(StoreUnavailable, match="no bucket"):
            call("k", b"")
    with pytest.raises(StoreUnavailable, match="no bucket"):
        store.read("k")
    with pytest.raises(StoreUnavailable, match="no bucket"):
        store.download("k", tmp_path / "t")


def test_a_store_that_is_away_is_unavailable_not_empty(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(s3, "_RETRIES", 0)
    with s3_server() as gone:
        location = gone.bucket()
        store = gone.store(location)
    for call in calls(store, tmp_path):
        with pytest.raises(StoreUnavailable) as caught:
            call()
        assert location in str(caught.value)
        assert SECRET not in str(caught.value)
        assert caught.value.exit_code == 6


def test_two_places_never_touch_each_others_objects(server: S3Server) -> None:
    bucket = server.bucket()
    one, other, above = server.store(f"{bucket}/p"), server.store(f"{bucket}/p2"), server.store(bucket)
    one.put("files/a", b"1")
    other.put("files/a", b"2")
    assert [s.key for s in one.list()] == ["files/a"]
    one.delete("files/a")
    assert other.read("files/a") == b"2"
    assert [s.key for s in above.list()] == ["p2/files/a"]


def test_a_refusal_is_told_as_one(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    from obstore.exceptions import PermissionDeniedError

    store = server.store()

    def denied(*_: object, **__: object) -> object:
        raise PermissionDeniedError("Access Denied\nDebug source: ...")

    monkeypatch.setattr(s3.obstore, "get", denied)
    with pytest.raises(NotPermitted, match="Access Denied") as caught:
        store.read("k")
    assert "Debug" not in str(caught.value)


def test_wrong_options_and_places_are_usage_and_show_no_secret(server: S3Server) -> None:
    with pytest.raises(Usage, match="nonsense") as caught:
        open_store(server.bucket(), {**server.options, "nonsense": SECRET})
    assert SECRET not in str(caught.value)
    with pytest.raises(Usage, match="names no bucket"):
        open_store("s3://", {})
    with pytest.raises(Usage, match="gs://x"):
        open_store("gs://x", {})
    with pytest.raises(Usage, match="drop them"):
        open_store("folder", {"region": "x"})
    assert isinstance(open_store("folder"), FolderStore)


@pytest.mark.parametrize(
    ("location", "options"),
    [
        (f"s3://id:{SECRET}@bucket/x", {}),
        (f"s3://bucket/x?secret_access_key={SECRET}", {}),
        ("s3://bucket/x", {"endpoint": f"http://id:{SECRET}@127.0.0.1:1"}),
        ("s3://bucket/../x", {}),
    ],
)
def test_credentials_have_no_place_in_a_url(location: str, options: dict[str, str]) -> None:
    with pytest.raises(Usage) as caught:
        open_store(location, options)
    assert SECRET not in str(caught.value)
    assert SECRET not in str(masked({"proxy_url": f"http://u:{SECRET}@p:1", **options}))
    assert SECRET not in masked_url(location)


def test_secrets_of_the_options_are_masked(server: S3Server) -> None:
    shown = masked(server.options)
    assert SECRET not in str(shown)
    assert shown["region"] == "us-east-1"


def test_an_endpoint_of_the_environment_may_speak_plain_http_too(
    server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in server.options.items():
        monkeypatch.setenv(f"AWS_{name.upper()}", value)
    store = open_store(server.bucket())
    store.put("k", b"1")
    assert store.read("k") == b"1"
