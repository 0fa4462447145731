"""Models, or what stands for one, by name: ``scripted``, ``openai``, and those that other packages register.

An entry point of the group ``dalsegno.providers`` names a function of one mapping of settings that gives a Provider.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from dalsegno.errors import NotFound
from dalsegno.harness.entry_points import installed
from dalsegno.harness.providers import scripted
from dalsegno.orchestration.ports import Provider

GROUP: Final = "dalsegno.providers"
_BUILT_IN: Final[dict[str, Callable[..., Any]]] = {"scripted": scripted.from_settings}


def open_provider(name: str, settings: Mapping[str, Any]) -> Provider:
    """Raises NotFound where no provider has that name, and Failed where its settings or its package are wrong."""
    found = installed(GROUP, _BUILT_IN)
    if name not in found:
        raise NotFound(
            f"no provider {name!r}",
            wanted=f"one of {', '.join(sorted(found))}",
            todo=f"install the package that registers it in the group {GROUP}",
            provider=name,
        )
    provider: Provider = found[name](settings)
    return provider
