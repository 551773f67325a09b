"""What receivers are told, made from the present state, and what their answers acknowledge."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy.orm import Session

from fleet.core.errors import InvalidInput
from fleet.core.times import stamp
from fleet.store import attention, machines, notices
from fleet.store.tables import NoticeRow
from fleet.webhook.receiver import ANSWER_LIMIT_BYTES, Answer

Notice = Mapping[str, Any]


def told(session: Session, destination: str, rows: Sequence[NoticeRow]) -> dict[str, Notice]:
    """By subject; a subject about which there is nothing to say any more is left out."""
    return _MAKERS[destination](session, rows)


def message(destination: str, told: Sequence[Notice], now: float) -> tuple[str, Mapping[str, Any]]:
    """Its id and what is in it. The id is that of the content: the same again is the same message, anything else is not."""
    data = {"notices": list(told)}
    digest = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
    return f"msg-{digest[:32]}", {"type": f"{destination}.notices", "timestamp": stamp(now), "data": data}


def acknowledged(destination: str, answer: Answer, told: Mapping[str, Notice]) -> set[str]:
    """The subjects that the receiver, which has taken the message, goes by from now on: all, unless it says which. 202 is
    a scheduler that will say so later. Raises InvalidInput for an answer that cannot be read."""
    if destination != notices.SCHEDULER:
        return set(told)
    if answer.status == 202:
        return set()
    if len(answer.content) > ANSWER_LIMIT_BYTES:
        raise InvalidInput(f"its answer has more than {ANSWER_LIMIT_BYTES >> 10} KiB")
    try:
        said = json.loads(answer.content)
    except (ValueError, RecursionError):
        said = None  # an "OK" in plain words
    if not isinstance(said, dict) or "acknowledged" not in said:
        return set(told)
    named = said["acknowledged"]
    if not isinstance(named, list) or not all(isinstance(id_, str) for id_ in named):
        raise InvalidInput("`acknowledged` in its answer is not a list of notice ids")
    return {subject for subject, notice in told.items() if notice["id"] in named}


def _of_machines(session: Session, rows: Sequence[NoticeRow]) -> dict[str, Notice]:
    now = machines.some(session, [row.subject for row in rows])
    return {
        machine.name: {
            "id": f"ntc-{row.id}",
            "kind": row.kind,
            "machine": machine.name,
            "version": machine.version,
            "claimable": machine.claimable,
            "state": machine.state,
            "since": stamp(machine.state_since),
            "why": machine.state_why,
            "sku": machine.sku,
            "held_by": None if machine.hold is None else machine.hold.owner,
        }
        for row in rows
        if (machine := now.get(row.subject)) is not None
    }


def _of_attention(session: Session, rows: Sequence[NoticeRow]) -> dict[str, Notice]:
    """What was over before anybody could be told of it is left out."""
    now = attention.some(session, [row.subject for row in rows])
    return {
        record.id: {
            "id": f"ntc-{row.id}",
            "kind": row.kind,
            "attention": record.id,
            "version": attention.OPEN if record.resolved_at is None else attention.CLOSED,
            "about": record.kind,
            "machine": record.machine,
            "subject": record.subject,
            "reason": record.reason,
            "next_step": record.next_step,
            "since": stamp(record.since),
            "resolved_at": None if record.resolved_at is None else stamp(record.resolved_at),
            "resolved_by": record.resolved_by,
        }
        for row in rows
        if (record := now.get(row.subject)) is not None
        and (record.resolved_at is None or notices.was_told(session, notices.ATTENTION, row.subject))
    }


_MAKERS: Mapping[str, Callable[[Session, Sequence[NoticeRow]], dict[str, Notice]]] = {
    notices.SCHEDULER: _of_machines,
    notices.ATTENTION: _of_attention,
}
