"""What a model is shown: the order and scope of items, the parts of a request, its digest, the budget. Pure.

A request is a list of parts, each rendered alone to bytes: the system message, tool definitions in the catalogue's
order, the items in the order of their places. Nothing is taken out here: what is over the budget does not fit, and only
a compression rule changes that. Everything is linear in the items.

Layout of ``request_digest`` (``BUILDER_VERSION`` 1): SHA-256 over these lines, each ended by a line feed, digests in
lower-case hexadecimal of SHA-256::

    request 1 AGENT          the word, the builder's version, the inference's purpose
    system <digest>          of the system message's bytes
    tool <digest>            one line a tool definition, of its bytes
    item <digest>            one line an item, of its bytes
    params <digest>          of the canonical JSON of {"model": ..., "params": ...}

``tools_digest`` is that over the ``tool`` lines alone; ``template_digest`` is that of the template as it is pinned.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, Final, Protocol

import msgspec

from dalsegno.errors import NotReconstructable
from dalsegno.model.events import PackDrop, PackItem
from dalsegno.model.lifecycle.state import bounded
from dalsegno.orchestration.canonical import canonical
from dalsegno.orchestration.documents import Agent, Recipe, Tokenizer
from dalsegno.projections.decider import rendering
from dalsegno.projections.decider.rows import Item, Packed
from dalsegno.projections.decider.table import ANSWER, RESULTS

SYSTEM: Final = "system"
TOOLS: Final = "tools"
"""Items of every pack, before all others; ``TOOLS`` only where there are tools, as one."""
BYTES_PER_TOKEN: Final = 4
_PLACEHOLDER: Final = re.compile(r"\{\{|\}\}|\{(goal|session|stage|clock_start)\}")


class Contents(Protocol):
    """Contents by their SHA-256."""

    def get(self, digest: bytes) -> bytes: ...


# --- items ------------------------------------------------------------------------------------------------------------


def shared(item: Item) -> bool:
    """Every stage is shown it: what stands outside all stages (the goal, messages of before), and stages' outputs."""
    return item.stage_id == "" or item.id == bounded(f"{item.stage_id}/out")


def scope(items: Iterable[Item], stage_id: str, recipe: Recipe) -> list[Item]:
    """The items that a stage attempt is shown, in order. A result whose answer was compressed away is left out: a late
    receipt brings no half pair back."""
    seen = [item for item in items if recipe.history == "session" or item.stage_id == stage_id or shared(item)]
    answered = {item.place[0] for item in seen if is_answer(item)}
    seen = [item for item in seen if not is_result(item) or item.place[0] in answered]
    return sorted(seen, key=lambda item: (item.place, item.id))


def is_answer(item: Item) -> bool:
    """A model's answer, with the calls that it asks for."""
    return item.place[1] == ANSWER and item.kind == "MESSAGE"


def is_result(item: Item) -> bool:
    """A call's result, or what stands for it."""
    return item.place[1] == RESULTS and item.kind == "TOOL_RESULT"


def tokens(size: int, tokenizer: Tokenizer) -> int:
    """Tokens of so many bytes. Raises NotReconstructable for a tokenizer that this build does not have."""
    if tokenizer.name != "bytes/4":
        raise NotReconstructable(
            f"tokens counted by {tokenizer.name!r} cannot be recomputed",
            wanted="the tokenizer bytes/4",
            todo="pin the tokenizer bytes/4, or read the session where that tokenizer is installed",
            tokenizer=tokenizer.name,
        )
    return -(-size // BYTES_PER_TOKEN)


# --- parts ------------------------------------------------------------------------------------------------------------


def fill(template: str, *, goal: str, session: str, stage: str, clock_start: int | None) -> str:
    """A template with its names filled in, in one pass: a brace in a value means nothing. Other braces stay as they
    are. ``clock_start``: microseconds UTC, as RFC 3339; nothing where the session has none."""
    values = {"goal": goal, "session": session, "stage": stage, "clock_start": _instant(clock_start)}

    def replacement(match: re.Match[str]) -> str:
        name = match[1]
        return match[0][0] if name is None else values[name]

    return _PLACEHOLDER.sub(replacement, template)


def _instant(microseconds: int | None) -> str:
    if microseconds is None:
        return ""
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)
    except OverflowError:
        return f"{microseconds} microseconds after 1970-01-01T00:00:00Z"
    timespec = "microseconds" if moment.microsecond else "seconds"
    return moment.replace(tzinfo=None).isoformat(timespec=timespec) + "Z"


def request_digest(
    purpose: str, system: bytes, tools: Sequence[bytes], items: Sequence[bytes], model: str, params: Mapping[str, Any]
) -> bytes:
    """``system``, ``tools``: bytes; ``items``: digests of bytes. The layout stands above."""
    lines = [f"request {rendering.BUILDER_VERSION} {purpose}", f"system {sha256(system).hexdigest()}"]
    lines += [f"tool {sha256(tool).hexdigest()}" for tool in tools]
    lines += [f"item {digest.hex()}" for digest in items]
    asked = canonical({"model": model, "params": msgspec.to_builtins(params)})
    lines.append(f"params {sha256(asked).hexdigest()}")
    return _of_lines(lines)


def _tools_digest(tools: Sequence[bytes]) -> bytes:
    return _of_lines([f"tool {sha256(tool).hexdigest()}" for tool in tools])


def _of_lines(lines: Sequence[str]) -> bytes:
    return sha256("".join(f"{line}\n" for line in lines).encode()).digest()


# --- packs ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PackPlan:
    """A pack, as the difference to the one before it and as what is sent. The fields from ``removed`` on are those of
    ``ContextPackBuilt``. ``removed``: items of the base that are left out; ``added``: new or changed ones, each at its
    position in the pack that results; ``dropped``: those of ``removed`` that a compression took out."""

    system: bytes
    tools: tuple[bytes, ...]
    items: tuple[Item, ...]
    removed: tuple[str, ...]
    added: tuple[PackItem, ...]
    dropped: tuple[PackDrop, ...]
    builder_version: str
    template_digest: bytes
    tools_digest: bytes | None
    tokenizer: str
    token_total: int
    token_budget: int | None
    fits: bool
    request_digest: bytes


def pack(
    items: Sequence[Item],
    base: Mapping[str, Packed],
    *,
    system: bytes,
    template: str,
    tools: Sequence[bytes],
    agent: Agent,
    recipe: Recipe,
    tokenizer: Tokenizer,
    held: Mapping[str, Any],
) -> PackPlan:
    """What is sent now. ``items``: those that the stage is shown (``scope``); ``base``: the session's last pack;
    ``held``: all items that the session has, by id: one of the base that is not there was compressed."""
    tools_digest = _tools_digest(tools) if tools else None
    entries = [_entry(SYSTEM, "SYSTEM", sha256(system).digest(), tokens(len(system), tokenizer))]
    if tools_digest is not None:
        entries.append(_entry(TOOLS, "TOOL_DEFS", tools_digest, sum(tokens(len(tool), tokenizer) for tool in tools)))
    entries += [
        _entry(item.id, item.kind, item.digest, tokens(item.size, tokenizer), item.mode, item.compression_id)
        for item in items
    ]
    total = sum(entry.tokens or 0 for entry in entries)
    there = {entry.item_id for entry in entries}
    removed = tuple(sorted(id for id in base if id not in there))
    return PackPlan(
        system=system,
        tools=tuple(tools),
        items=tuple(items),
        removed=removed,
        added=tuple(
            msgspec.structs.replace(entry, position=position)
            for position, entry in enumerate(entries)
            if _changed(base.get(entry.item_id), entry)
        ),
        dropped=tuple(
            PackDrop(item_id=id, reason="compressed") for id in removed if id not in held and id not in (SYSTEM, TOOLS)
        ),
        builder_version=str(rendering.BUILDER_VERSION),
        template_digest=sha256(template.encode("utf-8", "surrogatepass")).digest(),
        tools_digest=tools_digest,
        tokenizer=tokenizer.name,
        token_total=total,
        token_budget=recipe.budget_tokens,
        fits=recipe.budget_tokens is None or total <= recipe.budget_tokens,
        request_digest=request_digest(
            "AGENT", system, tools, [item.digest for item in items], agent.model, agent.params
        ),
    )


def _entry(id: str, kind: Any, digest: bytes, tokens: int, mode: Any = "FULL", compression_id: str = "") -> PackItem:
    return PackItem(
        item_id=id,
        kind=kind,
        mode=mode,
        position=0,
        tokens=tokens,
        digest=digest,
        compression_id=compression_id or None,
    )


def _changed(before: Packed | None, entry: PackItem) -> bool:
    return before is None or before.digest != entry.digest or before.mode != entry.mode


def resulting(base: Sequence[str], removed: Iterable[str], added: Iterable[PackItem]) -> list[str]:
    """The ids of a pack in their order: the base's, without what is removed or stands in ``added``, each of which is
    put at its position."""
    placed = {entry.position: entry.item_id for entry in added}
    gone = {*removed, *placed.values()}
    kept = [id for id in base if id not in gone]
    rest = iter(kept)
    return [placed[at] if at in placed else next(rest) for at in range(len(kept) + len(placed))]


# --- what is sent -----------------------------------------------------------------------------------------------------


def messages(plan: PackPlan, contents: Contents) -> list[dict[str, Any]]:
    """The chat messages of a pack. Raises NotReconstructable where the contents of an item are gone."""
    return [json.loads(plan.system), *(json.loads(contents.get(item.digest)) for item in plan.items)]


def tools(plan: PackPlan) -> list[dict[str, Any]]:
    return [json.loads(tool) for tool in plan.tools]
