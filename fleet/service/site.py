"""The switches of the whole site."""

from sqlalchemy.orm import Session

from fleet.service.access import Permit
from fleet.service.body import Body, Sentence
from fleet.service.listing import Json
from fleet.service.times import stamp
from fleet.service.writing import Answer
from fleet.store import site
from fleet.store.tables import SiteRow


class Pause(Body):
    reason: Sentence


def show(session: Session) -> Json:
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
    return Answer.done(show(session))


def resume(session: Session, permit: Permit) -> Answer:
    site.resume(session, permit.actor.by)
    return Answer.done(show(session))
