"""Carrying out a write: one transaction with its audit entry and its answer, or no effect and a note of the refusal."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from fleet.core.errors import Conflict, InvalidInput, NotFound, Refused
from fleet.service.access import Permit, refused
from fleet.service.document import document
from fleet.store import idempotency
from fleet.store.database import Database
from fleet.store.idempotency import Answered, Key

__all__ = ["Answer", "Answered", "Key", "key_of", "perform"]

_TRIES = 3
_NOT_KEPT = ""


@dataclass(frozen=True)
class Answer:
    """`status` in the words of HTTP, so that a repeated request can be told exactly what the first was told."""

    status: int
    body: Mapping[str, Any]
    secret: Mapping[str, Any] | None = None  # goes out with the body this once and is stored nowhere: no replay has it

    @classmethod
    def done(cls, body: Mapping[str, Any]) -> "Answer":
        return cls(200, body)

    @classmethod
    def created(cls, body: Mapping[str, Any], secret: Mapping[str, Any] | None = None) -> "Answer":
        return cls(201, body, secret)

    @classmethod
    def accepted(cls, body: Mapping[str, Any]) -> "Answer":
        return cls(202, body)


def key_of(permit: Permit, key: str, body: bytes) -> Key:
    """The caller's key, bound to its token and to everything that the request says."""
    return Key(permit.actor.token, key, hashlib.sha256(f"{permit.target}\n".encode() + body).hexdigest())


def perform(
    db: Database, permit: Permit, work: Callable[[Session], Answer], *, key: Key | None = None, said: str = ""
) -> Answered:
    """Do `work` in one write transaction, at most once per `key`, and give its answer as JSON text.

    A refusal (FleetError of state, role, input) undoes everything, is audited with the start of what the request `said`,
    and is not stored under the key: nothing has happened, so the same request may be tried again."""
    try:
        return _tried(db, work, key)
    except (Refused, NotFound, InvalidInput, Conflict) as exc:
        refused(db, permit, exc, said)
        raise


def _tried(db: Database, work: Callable[[Session], Answer], key: Key | None) -> Answered:
    for last in (False,) * (_TRIES - 1) + (True,):
        try:
            return _once(db, work, key)
        except Conflict:  # somebody changed the record between our look and our write: look again
            if last:
                raise
        except IntegrityError as exc:  # the same, for a row that somebody else inserted
            if last:
                raise Conflict("somebody else changes this at the same time; try again") from exc
    raise AssertionError("unreachable")


def _once(db: Database, work: Callable[[Session], Answer], key: Key | None) -> Answered:
    with db.begin() as session:
        if key is not None and (given := idempotency.claim(session, key)) is not None:
            if given.response == _NOT_KEPT:
                raise Refused(f"what the key {key.key} made was shown once and is not kept; revoke it, use a new key")
            return given
        answer = work(session)
        given = Answered(answer.status, document({**answer.body, **(answer.secret or {})}))
        if key is not None:
            idempotency.answer(session, key, given if answer.secret is None else Answered(given.status, _NOT_KEPT))
        return given
