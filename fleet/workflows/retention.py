"""Retention: a round that tries the evidence store, drops the raw outputs that have had their time, and collects what no
record names.

The row is marked first, then the files go. A crash in between leaves files of a validation that says that it has none:
`_unmarked` looks for them at the start of each round. The other way round, a record would name files that are gone, and
nobody could tell this from a loss."""

from collections.abc import Callable

import sqlalchemy as sa
from sqlalchemy.orm import Session

from fleet.core.errors import EvidenceError
from fleet.core.ids import made_at
from fleet.engine.workflow import Next, Phase, Work, Workflow, ensure_run
from fleet.store import attention, validations
from fleet.store.database import db_now
from fleet.store.tables import TicketRow, ValidationRow
from fleet.workflows.keeping import ATTENTION, STORE, tells
from fleet.workflows.world import World

KIND = "retention"
TRY, DROP, COLLECT = "try", "drop", "collect"
BY = "service:retention"
_PROBE = "probe"
_PROBE_BYTES = 64 << 10
_AT_ONCE = 5  # validations in one step: in a bucket, each may be a hundred requests
_LISTED = 200
_DAY_S = 86400.0


def ensure(session: Session) -> None:
    """One for the whole fleet, whichever process starts first."""
    ensure_run(session, KIND, TRY, "fleet", why="first round")


def workflow(world: World) -> Workflow:
    def give_up(work: Work, error: Exception) -> Next:
        return Next(TRY, f"round broken off in {work.run.phase}: {error}", world.policy.retention_s, {"after": ""})

    handlers = {TRY: _try, DROP: _drop, COLLECT: _collect}
    phases = {name: Phase(_bound(world, step), abortable=False, max_attempts=2) for name, step in handlers.items()}
    return Workflow(KIND, phases, abort=_bound(world, _try), give_up=give_up)


def _bound(world: World, step: Callable[[World, Work], Next]) -> Callable[[Work], Next]:
    return lambda work: step(world, work)


def _try(world: World, work: Work) -> Next:
    """Does the store take something, and is there room by the site's own limit? People hear of a no, and of its end."""
    work.guard()
    try:
        world.evidence.put(_PROBE, _PROBE, _PROBE, bytes(_PROBE_BYTES))
        work.guard()
        world.evidence.drop(_PROBE)
    except EvidenceError as exc:
        return Next(DROP, f"the store takes nothing: {exc}", within=tells(str(exc)))
    with world.db.read() as session:
        kept, limit = validations.kept_bytes(session), world.policy.evidence_limit_bytes
    if kept >= limit:
        why = f"{kept >> 20} MiB are kept and {limit >> 20} MiB allowed (evidence.total_limit_gib)"
        return Next(DROP, why, within=tells(why))
    return Next(DROP, "the store takes evidence", within=_settles)


def _settles(session: Session) -> None:
    attention.settle(session, BY, kind=ATTENTION, subject=STORE)


def _drop(world: World, work: Work) -> Next:
    """A few validations a step, the oldest first."""
    with world.db.begin() as session:
        due = session.scalars(_due(world)).all()
        session.execute(sa.update(ValidationRow).where(ValidationRow.id.in_(due)).values(evidence_dropped_at=db_now()))
    for id_ in due:
        work.guard()
        world.evidence.drop(id_)
    if due:
        return Next(DROP, f"dropped the raw outputs of {len(due)} validations")
    return Next(COLLECT, "nothing else has had its time", data={"after": ""})


def _due(world: World) -> sa.Select[str]:
    """Not those that an open ticket names, the last that failed or one before it."""
    old = [
        sa.and_(ValidationRow.verdict == verdict, ValidationRow.ended_at <= db_now() - days * _DAY_S)
        for verdict, days in world.policy.keep_days.items()
    ]
    open_ticket = sa.exists().where(
        TicketRow.machine == ValidationRow.machine,
        TicketRow.closed_at.is_(None),
        sa.or_(TicketRow.validation == ValidationRow.id, TicketRow.created_at <= ValidationRow.ended_at),
    )
    wanted = sa.select(ValidationRow.id).where(ValidationRow.evidence_dropped_at.is_(None), sa.or_(*old), ~open_ticket)
    return wanted.order_by(ValidationRow.ended_at, ValidationRow.id).limit(_AT_ONCE)


def _collect(world: World, work: Work) -> Next:
    """What the store has of validations that are marked as dropped, or of which there is no record: a crash between mark and
    removal, or a database that was restored from before they began. The latter stay as long as the longest retention:
    somebody may still want to look. What has no name of ours is not ours to remove."""
    after = str(work.run.data.get("after", ""))
    work.guard()
    there = world.evidence.validations(after, _LISTED)
    with world.db.read() as session:
        rows = sa.select(ValidationRow.id, ValidationRow.evidence_dropped_at).where(ValidationRow.id.in_(there))
        dropped = {id_: at is not None for id_, at in session.execute(rows)}
    oldest = work.run.now - max(world.policy.keep_days.values()) * _DAY_S
    orphans = [id_ for id_ in there if dropped.get(id_, _made_before(id_, oldest))]
    for id_ in orphans[:_AT_ONCE]:
        work.guard()
        world.evidence.drop(id_)
    if len(orphans) > _AT_ONCE:
        return Next(COLLECT, "more without a record are left", data={"after": after})
    if there:
        return Next(COLLECT, f"{len(orphans)} without a record removed", data={"after": there[-1]})
    return Next(TRY, "round complete", world.policy.retention_s, data={"after": ""})


def _made_before(id_: str, at: float) -> bool:
    made = made_at(id_)
    return made is not None and made < at
