"""The site's own word before a test VM is placed: a receipt that the disks were wiped, the network partitioned.

Hooks are asked one after the other, in the order of the settings, each until it says yes or no. None of them is evidence of
the hardware: a no, or no yes by the deadline, aborts the validation with the hook's name and its words."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from sqlalchemy.orm import Session

from fleet.core.clock import Deadline
from fleet.engine.workflow import Next, Work
from fleet.hooks.base import CALL_S, Hook, Reply
from fleet.store import validations
from fleet.workflows.preflight import last_look
from fleet.workflows.record import Record, ended_early
from fleet.workflows.world import World

_SOONEST_S, _LATEST_S = 0.5, 15.0  # between two questions: a tenth of what it has taken so far


def hooks(world: World, work: Work, record: Record) -> Next:
    hook = next((hook for hook in world.hooks if hook.name not in record.receipts), None)
    if hook is None:
        return Next("preflight", "the site's hooks said yes", data={"hooks_done": True})
    began: Mapping[str, float] = record.data.get("hooks_asked", {})
    since = began.get(hook.name, work.run.now)
    work.guard()
    answer = hook.ask(question(record, hook), f"{record.id}/{hook.name}", Deadline.after(CALL_S))
    said = f"{answer.reply}: {answer.words}" if answer.words else str(answer.reply)
    if answer.reply is Reply.YES:

        def within(session: Session) -> None:
            validations.put_receipt(session, record.id, hook.name, answer.receipt)

        return Next("hooks", f"hook {hook.name} said yes", within=within)
    asked_for_s = work.run.now - since
    if answer.reply is Reply.NO:
        return _ended(world, work, record, f"hook {hook.name} said {said}")
    if asked_for_s >= hook.deadline_s:
        return _ended(world, work, record, f"hook {hook.name} did not say yes within {hook.deadline_s:.0f} s: {said}")
    wait_s = min(_LATEST_S, max(_SOONEST_S, asked_for_s / 10))
    return Next("hooks", f"hook {hook.name}: {said}", wait_s, data={"hooks_asked": {**began, hook.name: since}})


def question(record: Record, hook: Hook) -> dict[str, Any]:
    """What a hook is told. The same for the same key, however often it is asked."""
    machine = record.machine
    return {
        "hook": hook.name,
        "validation": record.id,
        "trigger": record.trigger,
        "prior_state": record.prior_state,
        "vacated_because": dict(machine.vacated_because),
        "machine": {
            "name": machine.name,
            "sku": machine.sku,
            "rack": machine.rack,
            "address": machine.ssh.address,
            "slots": [asdict(slot) for slot in machine.slots],
        },
    }


def _ended(world: World, work: Work, record: Record, why: str) -> Next:
    """The hook may have taken long: whether the host can go back to where it came from is seen now."""
    work.guard()
    return ended_early(record, "hooks", why, last_look(world, record))
