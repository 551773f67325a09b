"""The whole service under kill -9 and freezes: a simulated rack is validated again and again, while workers are killed at random
moments and replaced, or frozen for longer than their leases last; with `--weather` hosts go down and networks are cut as
well. Exit status 1 on harm; with `--reckless`, where none was found.

    python -m tests.torture.rack [--database sqlite postgresql] [--kills 200] [--freezes 200] [--weather] [--reckless]
"""

import argparse
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from fleet.app import parts
from fleet.core.states import State
from fleet.lab.client import LabClient
from fleet.lab.process import LabProcess
from fleet.store import machines
from fleet.store.database import Database
from fleet.store.tables import AuditRow, TicketRow, ValidationRow
from fleet.store.upgrade import upgrade
from tests import postgres
from tests.integration.rack import records, working
from tests.torture import rack_harm, reckless
from tests.torture.rack_crowd import Crowd

FAULTS = {"lab-03": "faulty-gpu", "lab-08": "faulty-gpu", "lab-05": "vm-not-placed", "lab-11": "vm-not-placed"}
LEASE_S = 4.0
_SETTLE_S = 180.0  # until the last validation has its verdict once nobody is killed any more
_FREE = (State.AVAILABLE, State.FAILED, State.VACATED)


@dataclass(frozen=True)
class Report:
    validations: int
    kills: int
    freezes: int
    kills_by_phase: Counter[str]  # of any validation that was open when a worker was killed or frozen
    verdicts: Counter[str]
    harm: Counter[str]

    def __str__(self) -> str:
        verdicts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(self.verdicts.items()))
        done = f"{self.kills} kills, {self.freezes} freezes"
        return f"{self.validations} validations ({verdicts}), {done}; harm: {dict(self.harm) or 'none'}"


def play(
    url: str,
    folder: Path,
    *,
    count: int = 12,
    workers: int = 3,
    kills: int = 200,
    freezes: int = 0,
    at_least_s: float = 0.0,
    weather: bool = False,
    guarded: bool = True,
    seed: int = 1,
) -> Report:
    """On an empty database at head: until so many were killed and frozen, and for so long. Without `guarded` nobody asks
    whether it may still act, and no host keeps a fence."""
    lab = LabProcess(folder / "lab", machines=count + 1)
    manifest = lab.start()
    db = Database(url)
    try:
        settings = working.settings(folder / "home", url)
        parts.data_directory(settings)
        image = records.ready(db, settings, manifest)
        names = [entry.name for entry in manifest.machines][1:]  # the first has a tenant
        faults = {name: fault for name, fault in FAULTS.items() if name in names}
        for name, fault in faults.items():
            lab.client().break_(name, fault)
        library = parts.library(settings)
        dice = random.Random(seed)
        arguments: dict[str, Any] = {
            "lab": folder / "lab",
            "home": folder / "home",
            "database": url,
            "lease_s": LEASE_S,
        }
        if freezes:
            arguments["each"] = partial(reckless.hesitant, guarded=guarded)
        if not guarded:
            arguments["outside"] = partial(reckless.forgetful, folder / "lab")
        crowd = Crowd(arguments, workers, dice)
        sky = _Weather(lab.client(), names, dice)
        seen: Counter[str] = Counter()
        try:
            start = time.monotonic()
            while crowd.kills < kills or crowd.freezes < freezes or time.monotonic() - start < at_least_s:
                for name in _free(db, names):
                    records.begun(db, library, image, name, "burn")
                time.sleep(crowd.pause_s())
                crowd.thaw()
                left = {"kill": kills - crowd.kills, "freeze": freezes - crowd.freezes}
                if acts := [what for what, count in left.items() if count > 0]:
                    seen.update(_open_phases(db))
                    crowd.kill_one() if dice.choice(acts) == "kill" else crowd.freeze_one()
                if weather:
                    sky.change()
            sky.clear()
            end = time.monotonic() + _SETTLE_S
            while (
                not crowd.thaw() or _open_phases(db) or (weather and any(_left(lab).values()))
            ) and time.monotonic() < end:
                time.sleep(0.2)
        finally:
            crowd.end()
        logs = {name: (folder / f"lab/machines/{name}/root/var/log/kmsg").read_text() for name in names}
        return _report(db, names, faults, _left(lab), logs, crowd, seen, weather)
    finally:
        db.close()
        lab.stop()


class _Weather:
    """Puts a machine's network or host away for some seconds, one after the other."""

    def __init__(self, lab: LabClient, names: list[str], dice: random.Random) -> None:
        self._lab, self._names, self._dice = lab, names, dice
        self._until: dict[tuple[str, str], float] = {}

    def change(self) -> None:
        for (name, fault), until in list(self._until.items()):
            if time.monotonic() > until:
                self._lab.mend(name, fault)
                del self._until[name, fault]
        name = self._dice.choice(self._names)
        if not any(away == name for away, _ in self._until):
            fault = self._dice.choice(("network-cut", "host-dies", "ssh-drops"))
            self._lab.break_(name, fault)
            self._until[name, fault] = time.monotonic() + self._dice.choice((0.5, 2.0, 5.0, 12.0))

    def clear(self) -> None:
        for name, fault in self._until:
            self._lab.mend(name, fault)


def _left(lab: LabProcess) -> dict[str, int]:
    """By machine, how many test VMs are on it."""
    rows = lab.client().machines()
    return {row["name"]: sum(d["instance"] is None for d in row["domains"]) for row in rows}


def _free(db: Database, names: list[str]) -> list[str]:
    with db.read() as session:
        return [name for name in names if machines.get(session, name).state in _FREE]


def _open_phases(db: Database) -> list[str]:
    with db.read() as session:
        rows = session.scalars(sa.select(ValidationRow.phases).where(ValidationRow.verdict.is_(None)))
        return [phases[-1]["phase"] for phases in rows]


def _report(
    db: Database,
    names: list[str],
    faults: Mapping[str, str],
    left: Mapping[str, int],
    logs: Mapping[str, str],
    crowd: Crowd,
    seen: Counter[str],
    weather: bool,
) -> Report:
    with db.read() as session:
        rows = session.scalars(sa.select(ValidationRow)).all()
        settlements: dict[str, list[tuple[str, str]]] = {}
        for detail in session.scalars(sa.select(AuditRow.detail).where(AuditRow.action.like("machine.%"))):
            if "verdict" in detail:
                settlements.setdefault(detail["validation"], []).append((detail["verdict"], detail["now"]))
        tickets = Counter(session.scalars(sa.select(TicketRow.machine)))
    validations = [
        rack_harm.Validation(faults.get(row.machine), row.verdict, tuple(settlements.get(row.id, ()))) for row in rows
    ]
    by_machine = Counter(row.machine for row in rows)
    hosts = [
        rack_harm.Machine(faults.get(name), by_machine[name], tickets[name], _creates(logs[name]), left[name])
        for name in names
    ]
    verdicts = Counter(str(row.verdict) for row in rows)
    harm = rack_harm.found(validations, hosts, weather=weather)
    return Report(len(rows), crowd.kills, crowd.freezes, seen, verdicts, harm)


def _creates(kernel_log: str) -> int:
    """libvirt takes a VM's devices one after the other; the first one that the log names is in every VM."""
    device = re.search(r"vfio-pci (\S+): enabling device", kernel_log)
    return 0 if device is None else kernel_log.count(f"vfio-pci {device[1]}: enabling device")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture.rack", description=__doc__)
    parser.add_argument("--database", nargs="+", default=["sqlite", "postgresql"], choices=["sqlite", "postgresql"])
    parser.add_argument("--kills", type=int, default=200, help="on each database")
    parser.add_argument("--freezes", type=int, default=0, help="on PostgreSQL; SQLite has one worker only")
    parser.add_argument("--machines", type=int, default=12)
    parser.add_argument("--weather", action="store_true", help="cut networks and hosts as well")
    parser.add_argument("--reckless", action="store_true", help="show what guard and fence prevent")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    right = True
    for database in asked.database:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rack-")))
            url, workers = _place(database, folder, stack)
            freezes = asked.freezes if database == "postgresql" else 0
            if freezes:
                workers *= 2  # half of them are frozen at any time
            report = play(
                url,
                folder,
                count=asked.machines,
                workers=workers,
                kills=asked.kills,
                freezes=freezes,
                guarded=not asked.reckless,
                weather=asked.weather,
                seed=asked.seed,
            )
            print(f"{database}, {workers} workers{', bad weather' if asked.weather else ''}: {report}")
            print("  open when a worker was killed or frozen:", dict(report.kills_by_phase), flush=True)
            right = right and bool(report.harm) is asked.reckless
    return 0 if right else 1


def _place(database: str, folder: Path, stack: ExitStack) -> tuple[str, int]:
    """A new database, and how many workers it is for."""
    url, workers = f"sqlite:///{folder / 'fleet.sqlite'}", 1
    if database == "postgresql":
        binaries = postgres.find_binaries()
        if binaries is None:
            raise SystemExit("PostgreSQL is not installed (Debian: apt-get install postgresql)")
        url, workers = stack.enter_context(postgres.server(binaries)), 3
    db = Database(url)
    upgrade(db)
    db.close()
    return url, workers


if __name__ == "__main__":
    sys.exit(main())
