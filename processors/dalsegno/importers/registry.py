"""Which formats there are, by the name that the command line takes."""

from __future__ import annotations

from collections.abc import Callable

from dalsegno.importers.base import Importer
from dalsegno.importers.inspect_ai import InspectImporter

IMPORTERS: dict[str, Callable[[], Importer]] = {InspectImporter.name: InspectImporter}
