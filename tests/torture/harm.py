"""What must never be found in the machines' histories. Repeated checks and teardowns are allowed: they do no harm."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.torture.world import Act, vm_is_up


@dataclass(frozen=True)
class Record:
    """What is known of one machine afterwards. `verdicts`: as settled in the database, `aborted`: the answer to the abort
    request, None when none was made."""

    machine: str
    history: Sequence[Act]
    verdicts: Sequence[str] = field(default=("passed",))
    aborted: bool | None = None
    rack: str | None = None


def of_machine(record: Record) -> Iterable[str]:
    """The kinds of harm done to one machine."""
    acts = [act.what for act in record.history]
    epochs = [act.epoch for act in record.history]
    released = [act for act in acts if act.startswith("release_")]
    if acts.count("power_cycle") > 1:
        yield "power cycled twice"
    if vm_is_up(list(record.history)):
        yield "VM left behind"
    if epochs != sorted(epochs):
        yield "act by a stale owner"
    if released and acts[acts.index(released[0]) :] != released:
        yield "act after release"
    if not record.verdicts:
        yield "never settled"
    elif len(record.verdicts) > 1 or {f"release_{v}" for v in record.verdicts} != set(released):
        yield "not one verdict"
    if record.aborted is not None and (record.verdicts == ("aborted",)) is not record.aborted:
        yield "abort answered with the opposite of what happened"


def of_budget(records: Iterable[Record], limit: int) -> Iterable[str]:
    """A machine is held from its first act to its first release."""
    changes = []
    for record in records:
        ends = [act.at for act in record.history if act.what.startswith("release_")]
        if record.history and ends:
            changes += [(record.history[0].at, 1), (ends[0], -1)]
    held = peak = 0
    for _, change in sorted(changes):
        held += change
        peak = max(peak, held)
    if peak > limit:
        yield f"budget passed: {peak} held at once, {limit} allowed"


def found(records: Sequence[Record], total: int, per_rack: int) -> Counter[str]:
    harm = Counter(kind for record in records for kind in of_machine(record))
    harm.update(of_budget(records, total))
    racks: Mapping[str | None, list[Record]] = {r.rack: [] for r in records if r.rack is not None}
    for record in records:
        if record.rack is not None:
            racks[record.rack].append(record)
    for rack in racks.values():
        harm.update(of_budget(rack, per_rack))
    return harm
