"""The whole service on a simulated rack under kill -9, briefly. `make torture` goes on for minutes."""

from pathlib import Path

import pytest

from tests.torture.rack import play
from tests.torture.rack_harm import Machine, Validation, found

PASSED = Validation(None, "passed", (("passed", "available"),))
HEALTHY = Machine(None, validations=3, tickets=0, creates=3, vms=0)


@pytest.mark.parametrize(
    ("validation", "machine", "harm"),
    [
        (PASSED, HEALTHY, []),
        (Validation("faulty-gpu", "failed", (("failed", "failed"),)), Machine("faulty-gpu", 3, 1, 3, 0), []),
        (Validation("vm-not-placed", "aborted", (("aborted", "available"),)), Machine("vm-not-placed", 3, 0, 4, 0), []),
        (Validation(None, None, ()), HEALTHY, ["validation lost"]),
        (
            Validation(None, "failed", (("failed", "failed"),)),
            HEALTHY,
            ["state not restored", "verdict failed, not passed"],
        ),
        (Validation(None, "passed", (("passed", "available"),) * 2), HEALTHY, ["not one verdict"]),
        (Validation(None, "passed", ()), HEALTHY, ["not one verdict"]),
        (Validation("vm-not-placed", "aborted", (("aborted", "vacated"),)), HEALTHY, ["state not restored"]),
        (PASSED, Machine(None, 3, 0, 3, 1), ["VM left"]),
        (PASSED, Machine(None, 3, 1, 3, 0), ["not one ticket"]),
        (PASSED, Machine("faulty-gpu", 3, 2, 3, 0), ["not one ticket"]),
        (PASSED, Machine("faulty-gpu", 3, 0, 3, 0), ["not one ticket"]),
        (PASSED, Machine(None, 3, 0, 4, 0), ["VM not created once"]),
    ],
)
def test_every_kind_of_harm_on_the_rack_is_seen(validation: Validation, machine: Machine, harm: list[str]) -> None:
    assert sorted(found([validation], [machine])) == harm


def test_bad_weather_excuses_an_abort_and_nothing_else() -> None:
    aborted = Validation(None, "aborted", (("aborted", "vacated"),))
    assert set(found([aborted], [])) == {"verdict aborted, not passed", "state not restored"}
    assert not found([aborted], [Machine("faulty-gpu", 3, 0, 2, 0)], weather=True)
    condemned = Validation(None, "failed", (("failed", "failed"),))
    assert set(found([condemned], [Machine(None, 3, 1, 3, 1)], weather=True)) == {
        "verdict failed, not passed",
        "state not restored",
        "not one ticket",
        "VM left",
    }


@pytest.mark.real
def test_no_harm_is_done_to_the_rack_whoever_is_killed(postgresql_url: str, tmp_path: Path) -> None:
    report = play(postgresql_url, tmp_path, count=5, workers=2, kills=10)
    assert not report.harm, report
    assert report.kills == 10
    assert set(report.verdicts) == {"passed", "failed", "aborted"}, report
