"""Which formats there are, by the name that the command line takes. A new format is one line here."""

from __future__ import annotations

from dalsegno.importers.base import Importer
from dalsegno.importers.codex import CodexImporter
from dalsegno.importers.inspect_ai import InspectImporter
from dalsegno.importers.mini_swe_agent import MiniSweAgentImporter

IMPORTERS: dict[str, type[Importer]] = {
    "codex": CodexImporter,
    "inspect": InspectImporter,
    "mini-swe-agent": MiniSweAgentImporter,
}
