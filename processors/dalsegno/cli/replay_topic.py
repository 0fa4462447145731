"""All that the topic of replays holds: plans of projections, plans of sessions, and what came of sessions."""

from __future__ import annotations

from typing import NamedTuple

from dalsegno.cli.common import one_match
from dalsegno.cli.context import Context
from dalsegno.log.reader import read_compacted
from dalsegno.replay.session_plans import StoredPlan, parse_session_plans
from dalsegno.replay.session_records import Kept, parse_kept
from dalsegno.replay.store import READ_TIMEOUT_SECONDS, StoredReplay, parse_replays, replays_topic


class Topic(NamedTuple):
    """By id, oldest first."""

    projections: dict[str, StoredReplay]
    sessions: dict[str, StoredPlan]
    kept: dict[str, Kept]

    @property
    def ids(self) -> list[str]:
        """What is meant by a beginning, newest plans first; what came of a plan's sessions only where it is named."""
        return [*reversed([*self.projections, *self.sessions]), *self.kept]

    def find(self, given: str) -> str:
        """The whole id. Raises NotFound, Usage."""
        if given in self.kept:
            return given
        return one_match(given, [id for id in self.ids if id not in self.kept or not self.is_of_plan(id)], "replay")

    def is_of_plan(self, id: str) -> bool:
        """Whether it is the replay of a planned session."""
        return id.rpartition(".")[0] in self.sessions

    def of_plan(self, stored: StoredPlan) -> dict[int, Kept]:
        """What came of a plan's sessions, by their numbers."""
        ids = {number: stored.plan.replay_id(number) for number in range(1, len(stored.plan.sessions) + 1)}
        return {number: self.kept[id] for number, id in ids.items() if id in self.kept}


def read_topic(ctx: Context) -> Topic:
    """Raises TopicMissing, BrokerUnavailable, WaitTimeout."""
    table = read_compacted(ctx.kafka, replays_topic(ctx.prefix), READ_TIMEOUT_SECONDS)
    return Topic(parse_replays(table, ctx.store), parse_session_plans(table, ctx.store), parse_kept(table))
