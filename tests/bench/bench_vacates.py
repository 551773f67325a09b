"""A burst: 500 of 10,000 machines are vacated at once, as when a provider drains a hall; one event in ten is sent twice. Goal:
all taken in within 10 s by one API process, none lost and none doubled. The peer is as many requests that read one value.

    python -m tests.bench.bench_vacates
"""

import sys
import time
from collections import Counter

import sqlalchemy as sa

from fleet.store.tables import AuditRow, EventRow, InstanceRow, MachineRow, RunRow
from tests.bench.served import Served, served, together

VACATES = 500
CALLERS = 16
GOAL_S = 10.0


def main() -> int:
    with served() as fleet:
        with fleet.db.read() as session:
            tenants = session.execute(sa.select(InstanceRow.machine, InstanceRow.id).limit(VACATES)).all()
        events = [
            {"id": f"burst-{machine}", "kind": "instance.migrated", "machine": machine, "instance": instance}
            for machine, instance in tenants
        ]
        sent = [event for number, event in enumerate(events) for event in [event] * (2 if number % 10 == 0 else 1)]
        started = time.monotonic()
        together(lambda _: fleet.client.get("/readyz"), sent, CALLERS)
        floor_s = time.monotonic() - started
        started = time.monotonic()
        answers = together(lambda event: fleet.post("/v1/events", event), sent, CALLERS)
        took_s = time.monotonic() - started
        harm = lost(fleet, [machine for machine, _ in tenants])
    told = Counter(answer.status_code for answer in answers)
    print(
        f"{VACATES} vacates in {len(sent)} requests: {took_s:.1f} s = {took_s / GOAL_S:.2f} of the goal, {dict(told)}"
    )
    print(f"  {took_s / floor_s:.1f} x as long as requests that read one value")
    print(f"  lost or doubled (bound 0): {sum(harm.values())} {dict(harm) or ''}")
    return int(bool(harm) or set(told) - {200, 202} != set())


def lost(fleet: Served, machines: list[str]) -> Counter[str]:
    """What each of these machines should have got once, and has not."""
    counted = {
        "event": sa.select(EventRow.machine).where(EventRow.id.like("burst-%"), EventRow.state == "applied"),
        "move": sa.select(AuditRow.machine).where(AuditRow.action == "machine.vacated"),
        "run": sa.select(RunRow.subject).where(RunRow.kind == "vacancy", RunRow.ended_at.is_(None)),
        "machine out": sa.select(MachineRow.name).where(MachineRow.state == "vacated", MachineRow.name.in_(machines)),
    }
    harm: Counter[str] = Counter()
    with fleet.db.read() as session:
        for what, query in counted.items():
            found = Counter(session.scalars(query))
            harm.update({what: sum(found[machine] != 1 for machine in machines)})
    return +harm


if __name__ == "__main__":
    sys.exit(main())
