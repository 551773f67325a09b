"""The switches of the whole site."""

from typing import Literal

from sqlalchemy.orm import Session

from fleet.core.errors import Refused
from fleet.service.access import Permit
from fleet.service.body import Body, Sentence
from fleet.service.listing import Json
from fleet.service.times import stamp
from fleet.service.writing import Answer
from fleet.store import site
from fleet.store.tables import SiteRow
from fleet.workflows import begin


class Pause(Body):
    reason: Sentence


class Resume(Body):
    reason: Sentence | None = None


class Mode(Body):
    mode: Literal["observe", "enforce"]
    reason: Sentence | None = None


def show(session: Session, two_person_rule: bool) -> Json:
    return {**_view(session), "two_person_rule": two_person_rule}


def _view(session: Session) -> Json:
    row = session.get(SiteRow, 1)
    paused = None if row is None else row.paused
    return {
        "id": "site",
        "mode": "observe" if row is None else row.mode,
        "paused": None if paused is None else {**paused, "since": stamp(paused["since"])},
    }


def pause(session: Session, permit: Permit, order: Pause) -> Answer:
    """Stop every new automatic act; what runs goes on, and people may still start validations."""
    site.pause(session, order.reason, permit.actor.by)
    return Answer.done(_view(session))


def resume(session: Session, permit: Permit, order: Resume) -> Answer:
    site.resume(session, permit.actor.by, order.reason)
    begin.wake(session)
    return Answer.done(_view(session))


def set_mode(session: Session, permit: Permit, order: Mode) -> Answer:
    """For validations that start from now on; what runs ends by the mode that it began with."""
    if site.get(session).mode == order.mode:
        raise Refused(f"the site is in mode {order.mode} already")
    site.set_mode(session, order.mode, permit.actor.by, order.reason)
    return Answer.done(_view(session))
