"""Following the runner in the test VM: fetch what has ended, judge it at once, stop at the first failure. Losing the
connection is never a verdict; the checks go on in the guest, and the next look picks up where this one ended."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy.orm import Session

from fleet.core.clock import Deadline
from fleet.core.errors import FleetError, RemoteError
from fleet.engine.workflow import Next, Work
from fleet.hypervisor.base import Placement
from fleet.store import validations
from fleet.store.tables import MeasurementRow
from fleet.workflows import judging
from fleet.workflows.guest import GuestError, GuestPoll, GuestRun
from fleet.workflows.playbook import check_of
from fleet.workflows.record import Record, ended_early, in_order, keep, tenant_on
from fleet.workflows.world import World
from validators import CHECKS
from validators.base import Ended, Outcome

_LOOK_AT_LEAST_S, _LOOK_AT_MOST_S = 0.4, 2.0


def checks(world: World, work: Work, record: Record) -> Next:
    looked_at = float(record.data.get("looked_at", work.run.phase_since))
    if work.run.now - looked_at > world.policy.host_look_s:
        return _look_at_host(world, work, record)
    stored = _stored(world, record)
    guest = GuestRun(world.hypervisor.guest(record.test_vm), record.id)
    try:
        poll = guest.poll(
            {m.name for m in stored}, world.policy.output_limit_bytes, Deadline.after(world.policy.call_deadline_s)
        )
    except GuestError as exc:
        return ended_early(record, "checks", f"the runner's state cannot be had: {exc}")
    except RemoteError as exc:
        return _silent(world, work, record, exc)
    if (ends := _ended_badly(record, poll)) is not None:
        return ended_early(record, "checks", ends)
    poll = within_limit(poll, stored, world.policy.validation_limit_bytes)
    writes: list[Callable[[Session], None]] = []
    for name in sorted(poll.outputs):
        if writes:
            work.guard()  # each of them may take as long as half a lease
        writes.append(_keep(world, record, name, poll))
    progress = _progress(world, record, poll, stored)
    writes.append(lambda session: _note(session, record, progress))
    then = _decide(world, work, record, poll, progress, guest)
    return Next(then.phase, then.why, then.after_s, {"silent_since": None, **then.data}, in_order(*writes))


def last_outputs(world: World, record: Record) -> Callable[[Session], None] | None:
    """What has ended since the last look, for a run that is ended from outside; None when the guest does not tell, or
    nothing can be kept."""
    guest = GuestRun(world.hypervisor.guest(record.test_vm), record.id)
    deadline = Deadline.after(world.policy.call_deadline_s)
    try:
        stored = _stored(world, record)
        poll = guest.poll({m.name for m in stored}, world.policy.output_limit_bytes, deadline)
        if _ended_badly(record, poll) is not None:
            return None
        poll = within_limit(poll, stored, world.policy.validation_limit_bytes)
        return in_order(*(_keep(world, record, name, poll) for name in sorted(poll.outputs)))
    except FleetError:
        return None


def within_limit(poll: GuestPoll, stored: Sequence[MeasurementRow], limit_bytes: int) -> GuestPoll:
    """What a guest prints is bounded in all: the rest is cut off, and says so, so that its check proves nothing."""
    left = limit_bytes - sum(int(file["bytes"]) for row in stored for file in row.files.values())
    outputs = {}
    for name, output in sorted(poll.outputs.items()):
        stdout = output.stdout[: max(0, left)]
        left -= len(output.stdout)
        stderr = output.stderr[: max(0, left)]
        left -= len(output.stderr)
        cut = output.truncated or left < 0
        outputs[name] = replace(output, stdout=stdout, stderr=stderr, truncated=cut)
    return replace(poll, outputs=outputs)


def _stored(world: World, record: Record) -> Sequence[MeasurementRow]:
    with world.db.read() as session:
        return validations.measurements(session, record.id)


def _look_at_host(world: World, work: Work, record: Record) -> Next:
    """Reality wins: whoever placed a tenant here meanwhile gets the machine, and the test VM goes."""
    data = {"looked_at": work.run.now}
    try:
        view = world.hypervisor.look(record.machine, Deadline.after(world.policy.call_deadline_s))
    except FleetError as exc:  # the checks go on in the guest; whether that is silent is decided there
        return Next("checks", f"the host cannot be looked at: {exc}", data=data)
    if view.tenants:
        return ended_early(record, "checks", *tenant_on(view))
    return Next("checks", "only the test VM is on the host", data=data)


def _decide(
    world: World, work: Work, record: Record, poll: GuestPoll, progress: Mapping[str, Any], guest: GuestRun
) -> Next:
    assert poll.state is not None
    failed = [n for n, p in progress.items() if p["outcome"] == Outcome.FAILED and n in record.playbook.enforced]
    if poll.state.state in ("done", "stopped"):
        return Next("collect", "the checks have ended")
    if failed and not record.playbook.plan.run_all:
        work.guard()
        guest.stop(Deadline.after(world.policy.call_deadline_s))
        why = f"{failed[0]} failed, which ends the run"
        return Next("collect", why, data={"ended_by": why})
    if work.run.in_phase_s > record.playbook.guest_deadline_s(record.machine):
        return ended_early(record, "checks", "the checks took longer than all their deadlines together")
    running = [n for n, c in poll.state.checks.items() if c.state == "running"]
    why = f"running {', '.join(running)}" if running else "between two checks"
    return Next("checks", why, min(_LOOK_AT_MOST_S, max(_LOOK_AT_LEAST_S, work.run.in_phase_s / 20)))


def _ended_badly(record: Record, poll: GuestPoll) -> str | None:
    if poll.state is None:
        return "the runner left no state in the test VM: it was not started, or its disk is gone"
    if poll.state.state == "broken":
        return f"the runner in the test VM broke: {poll.state.reason}"
    # some names are evidence of the control plane's own, which no guest may replace
    if strange := sorted(set(poll.state.checks) - set(record.playbook.step_names(record.machine))):
        return f"the runner in the test VM reports {strange[0]}, which is not in the plan"
    if poll.state.boot_id != record.data.get("guest_boot_id"):
        return "the test VM was restarted while the checks ran"
    return None


def _silent(world: World, work: Work, record: Record, error: RemoteError) -> Next:
    since = float(record.data.get("silent_since") or work.run.now)
    silent_s = work.run.now - since
    if silent_s > world.policy.guest_silence_s:
        return ended_early(record, "checks", f"the test VM has not answered for {silent_s:.0f} s: {error}")
    if silent_s > 1.0:
        work.guard()  # the call that failed may have taken half a lease
        seen = world.hypervisor.placement(record.test_vm, Deadline.after(world.policy.call_deadline_s))
        if seen.placement is not Placement.RUNNING:
            return ended_early(record, "checks", f"the test VM ended while the checks ran ({seen.placement})")
    wait_s = min(_LOOK_AT_MOST_S, max(0.2, silent_s / 4))
    return Next("checks", f"no answer from the test VM: {error}", wait_s, data={"silent_since": since})


def _keep(world: World, record: Record, name: str, poll: GuestPoll) -> Callable[[Session], None]:
    assert poll.state is not None
    step, output = poll.state.checks[name], poll.outputs[name]
    return keep(
        world,
        record,
        check_of(name),
        name,
        output.stdout,
        output.stderr,
        ended=Ended(step.ended or Ended.LOST),
        exit_status=step.exit_status,
        started_at=step.started_at,
        duration_s=step.duration_s,
        truncated=output.truncated or step.truncated,
    )


def _progress(world: World, record: Record, poll: GuestPoll, stored: Sequence[MeasurementRow]) -> dict[str, Any]:
    """By check: waiting, running with per cent, or ended with its outcome so far. Judged with what has just come in and
    what was stored before, as the verdict will be."""
    assert poll.state is not None
    progress: dict[str, Any] = {}
    for name, step in poll.state.checks.items():
        check = check_of(name)
        if check not in CHECKS or check not in record.playbook.plan.names:
            continue
        entry = dict(record.progress.get(check) or {"state": "waiting", "percent": None, "outcome": None})
        if step.state == "running":
            reader = CHECKS[check].progress
            entry |= {"state": "running", "percent": reader(step.tail) if reader is not None else None}
        elif step.state == "ended" and name in poll.outputs:
            entry |= {"state": "ended", "percent": None, "outcome": _outcome(world, record, check, poll, stored)}
        progress[check] = entry
    return progress


def _outcome(world: World, record: Record, check: str, poll: GuestPoll, stored: Sequence[MeasurementRow]) -> str:
    measured = [judging.read(row, world.evidence) for row in stored if row.check == check]
    measured += [judging.fresh(n, poll) for n in sorted(poll.outputs) if check_of(n) == check]
    return str(judging.judge_check(check, measured, record.playbook, record.machine, record.since).outcome)


def _note(session: Session, record: Record, progress: Mapping[str, Any]) -> None:
    if progress != record.progress:
        validations.set_progress(session, record.id, progress)
