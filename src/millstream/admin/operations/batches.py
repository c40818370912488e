"""Staged batches as the reader commits and drops them for its callers, whom it has identified before."""

from __future__ import annotations

from typing import Final

from millstream.admin.context import AdminContext, read_list, read_text, read_whole
from millstream.batches.commits import StageCommits
from millstream.batches.files import Commit, CommitRefused
from millstream.runtime.control.server import ControlRefusal, Conversation, Fields, Operation
from millstream.storage.records.batch_records import STAGES_MAX
from millstream.storage.stages.format import is_stage_id

BATCH_MAX: Final = (1 << 62) - 1
QUERY_LENGTH_MAX: Final = 200


class StageOperations:
    def __init__(self, context: AdminContext, commits: StageCommits) -> None:
        self._context = context
        self._commits = commits

    async def limits(self, fields: Fields, conversation: Conversation) -> object:
        """What a row may be, so that the reader refuses what the broker could not publish."""
        limits = self._context.broker.limits
        return {
            "message_size_max": limits.message_size_max,
            "topic_length_max": limits.topic_length_max,
            "topic_levels_max": limits.topic_levels_max,
            "user_properties_max": limits.user_properties_max,
            "guarantee_max": 1 if limits.reject_qos2_publish else limits.guarantee_max,
        }

    async def commit(self, fields: Fields, conversation: Conversation) -> object:
        """`refused` is a status of HTTP where nothing was committed (yet); `error` and `hint` say why."""
        commit = _read_wish(fields)
        if not commit.stages:
            raise ControlRefusal("a commit names at least one stage")
        try:
            rows, was_committed = await self._commits.commit(commit)
        except CommitRefused as refused:
            return {
                "refused": refused.status,
                "error": refused.text,
                "hint": refused.hint,
                "retry_after_s": refused.retry_after_s,
                "rows": refused.rows,
            }
        return {"committed": rows, "was_committed": was_committed}

    async def drop(self, fields: Fields, conversation: Conversation) -> object:
        """All stages of a batch, or those that are named."""
        return {"dropped": await self._commits.drop(_read_wish(fields))}


def make_stage_operations(context: AdminContext, commits: StageCommits) -> dict[str, Operation]:
    stages = StageOperations(context, commits)
    return {"stage.limits": stages.limits, "stage.commit": stages.commit, "stage.drop": stages.drop}


def _read_wish(fields: Fields) -> Commit:
    query = read_text(fields, "query")
    if not query or len(query) > QUERY_LENGTH_MAX or not query.isprintable():
        raise ControlRefusal(f"a query is named by 1 to {QUERY_LENGTH_MAX} printable characters")
    stages: list[str] = []
    for stage in read_list(fields, "stages", STAGES_MAX) if "stages" in fields else []:
        if not isinstance(stage, str) or not is_stage_id(stage):
            raise ControlRefusal(f"{stage!r:.100} is no stage")
        stages.append(stage)
    return Commit(
        read_text(fields, "account"),
        read_text(fields, "user"),
        query,
        read_whole(fields, "batch", -1, 0, BATCH_MAX),
        stages,
        read_text(fields, "queue", ""),
        fields.get("single") is True,
    )
