"""Models, or what stands for one, by name: ``scripted``, ``openai``, and those that other packages register.

An entry point of the group ``dalsegno.providers`` names a function of one mapping of settings that gives a Provider.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from dalsegno.harness.loading import installed, one_of
from dalsegno.harness.providers import scripted
from dalsegno.orchestration.ports import Provider

GROUP: Final = "dalsegno.providers"


def _openai(settings: Mapping[str, Any]) -> Provider:
    from dalsegno.harness.providers import openai_http  # it needs aiohttp, which a script does not

    return openai_http.from_settings(settings)


_BUILT_IN: Final[dict[str, Callable[..., Any]]] = {"openai": _openai, "scripted": scripted.from_settings}


def open_provider(name: str, settings: Mapping[str, Any]) -> Provider:
    """Raises NotFound where no provider has that name, and Failed where its settings or its package are wrong."""
    opened: Provider = one_of(installed(GROUP, _BUILT_IN), name, GROUP, "provider")(settings)
    return opened
