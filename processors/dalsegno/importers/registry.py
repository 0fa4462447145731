"""Which formats there are, by the name that the command line takes. A new format is one line here."""

from __future__ import annotations

from dalsegno.importers.atif import AtifImporter
from dalsegno.importers.base import Importer
from dalsegno.importers.claude_code import ClaudeCodeImporter
from dalsegno.importers.codex import CodexImporter
from dalsegno.importers.inspect_ai import InspectImporter
from dalsegno.importers.mini_swe_agent import MiniSweAgentImporter
from dalsegno.importers.openhands import OpenHandsImporter
from dalsegno.importers.otel import OtelImporter
from dalsegno.importers.swe_agent import SweAgentImporter
from dalsegno.importers.temporal import TemporalImporter

IMPORTERS: dict[str, type[Importer]] = {
    kind.name: kind
    for kind in (
        AtifImporter,
        ClaudeCodeImporter,
        CodexImporter,
        InspectImporter,
        MiniSweAgentImporter,
        OpenHandsImporter,
        OtelImporter,
        SweAgentImporter,
        TemporalImporter,
    )
}
