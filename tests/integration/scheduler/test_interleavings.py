"""Random orders of everything that a scheduler, operators and a service that dies can do to one machine: no tenant on a
machine in validation. The same orders find harm as soon as one of the two gates is open. A thousand: `make torture`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.store.database import Database
from tests.integration.scheduler.interleaving import play

COUNT = 150


@pytest.fixture
def place(sqlite_url: str, tmp_path: Path) -> Iterator[tuple[Database, Path]]:
    db = Database(sqlite_url)
    yield db, tmp_path
    db.close()


def test_no_order_brings_a_tenant_onto_a_machine_in_validation(place: tuple[Database, Path]) -> None:
    assert play(*place, range(COUNT)) == []


def test_without_claims_it_does(place: tuple[Database, Path]) -> None:
    """Of schedulers that ask: what they acknowledge at once is no more than that they will ask."""
    harm = play(*place, range(1, 31, 2), gate=False)
    assert [seen for seen in harm if "test VM" in seen or "validating" in seen]


def test_without_waiting_for_acknowledgements_it_does(place: tuple[Database, Path]) -> None:
    """To schedulers that place first and ask later."""
    assert play(*place, range(0, 60, 2), waits=False)
