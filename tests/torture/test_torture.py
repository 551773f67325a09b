"""The engine under kill -9 and freezes, briefly. `make torture` goes on for minutes."""

import sys
from pathlib import Path

import pytest

from fleet.store.database import Database
from tests.torture.harm import Record, found, of_machine
from tests.torture.round import play
from tests.torture.world import Act

HEALTHY = ("power_cycle", "place_vm", "check_gpu", "teardown", "release_passed")


def record(*acts: str, **known: object) -> Record:
    return Record("m1", [Act(float(n), what, 1) for n, what in enumerate(acts)], **known)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seen", "harm"),
    [
        (record(*HEALTHY), []),
        (record("power_cycle", "place_vm", "teardown", "teardown", "release_passed", "release_passed"), []),
        (record("power_cycle", *HEALTHY), ["power cycled twice"]),
        (record("place_vm", "release_passed"), ["VM left behind"]),
        (record(*HEALTHY, "teardown"), ["act after release"]),
        (record(*HEALTHY, "release_aborted"), ["not one verdict"]),
        (record(*HEALTHY, verdicts=("passed", "passed")), ["not one verdict"]),
        (record(*HEALTHY, verdicts=("aborted",)), ["not one verdict"]),
        (record("power_cycle", verdicts=()), ["never settled"]),
        (record(*HEALTHY, aborted=False), []),
        (record(*HEALTHY, aborted=True), ["abort answered with the opposite of what happened"]),
        (
            Record(
                "m1",
                [Act(1, "check_gpu", 1), Act(2, "check_gpu", 2), Act(3, "check_gpu", 1), Act(4, "release_passed", 2)],
            ),
            ["act by a stale owner"],
        ),
    ],
)
def test_every_kind_of_harm_is_seen(seen: Record, harm: list[str]) -> None:
    assert list(of_machine(seen)) == harm


def test_a_passed_budget_is_seen() -> None:
    records = [
        Record(f"m{n}", [Act(n, "power_cycle", 1), Act(n + 1.5, "release_passed", 1)], rack="r1") for n in range(9)
    ]
    assert not found(records, total=2, per_rack=2)
    assert set(found(records, total=1, per_rack=2)) == {"budget passed: 2 held at once, 1 allowed"}
    assert set(found(records, total=2, per_rack=1)) == {"budget passed: 2 held at once, 1 allowed"}


def test_no_harm_is_done_whoever_is_killed_or_frozen(db: Database, tmp_path: Path) -> None:
    report = play(db, tmp_path, machines=9, workers=3, seed=1)
    print(report, file=sys.stderr)
    assert not report.harm, report
    assert report.kills
    assert report.freezes
    assert report.died == 0


def test_without_the_guard_harm_is_found(sqlite_url: str, tmp_path: Path) -> None:
    """Otherwise the test above would prove nothing. Every freeze outlasts a lease and most fall before an act, so one round
    is nearly always enough."""
    db = Database(sqlite_url)
    for seed in range(5):
        folder = tmp_path / str(seed)
        folder.mkdir()
        report = play(db, folder, machines=7, workers=3, seed=seed, guarded=False, kills=0.0)
        if report.harm:
            break
    db.close()
    assert set(report.harm) & {"power cycled twice", "act by a stale owner", "act after release", "VM left behind"}
