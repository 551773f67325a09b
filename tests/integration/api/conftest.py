"""The API over a real database, without a worker: what a request writes is all that happens."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from fleet.api.app import create_app
from fleet.api.limits import Limits, Rates
from fleet.core.errors import NotFound
from fleet.core.model import Machine
from fleet.service.access import Role
from fleet.service.services import Services
from fleet.store import machines, tokens, validations
from fleet.store.database import Database
from fleet.store.evidence import EvidenceFolder
from playbooks.loader import Library

LOOPBACK = ("127.0.0.1", 50000)
PATIENT = Rates(failed_logins=100_000)
"""Tests of refusals are refused more often than anybody should be."""


class Rack:
    """A simulated rack of two machines that remembers its faults."""

    def __init__(self) -> None:
        self.broken: dict[str, list[str]] = {"lab-01": [], "lab-02": []}

    def faults(self) -> list[dict[str, Any]]:
        return [{"name": "faulty-gpu", "description": "one GPU computes wrong"}]

    def machines(self) -> list[dict[str, Any]]:
        return [{"name": name, "faults": faults} for name, faults in self.broken.items()]

    def break_(self, machine: str, fault: str) -> None:
        self._of(machine, fault).append(fault)

    def mend(self, machine: str, fault: str) -> None:
        self._of(machine, fault).remove(fault)

    def _of(self, machine: str, fault: str) -> list[str]:
        if machine not in self.broken or fault != "faulty-gpu":
            raise NotFound(f"there is no machine {machine} or no fault {fault}")
        return self.broken[machine]


class Api:
    """A client of the API in any role, and the database behind it."""

    def __init__(self, services: Services, client: tuple[str, int] = LOOPBACK) -> None:
        self.services, self.db = services, services.db
        app = create_app(services, limits=Limits(PATIENT))
        self.http = TestClient(app, raise_server_exceptions=False, client=client)
        self._tokens = {role: self.token(role) for role in Role}
        self._keys = itertools.count(1)

    def token(self, role: Role, expires_in_s: float | None = None) -> str:
        with self.db.begin() as session:
            return tokens.create(session, f"{role}-test", role, expires_in_s)[1]

    def ended(self, role: Role, how: str) -> str:
        """A token that was good once; `how` is `expired` or `revoked`."""
        with self.db.begin() as session:
            row, token = tokens.create(session, f"{role}-{how}", role, -1.0 if how == "expired" else None)
            if how == "revoked":
                tokens.revoke(session, row.id)
            return token

    def headers(self, role: Role = Role.ADMIN) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._tokens[role]}"}

    def get(self, path: str, status: int = 200, role: Role = Role.ADMIN) -> Any:
        answer = self.http.get(path, headers=self.headers(role))
        assert answer.status_code == status, answer.text
        return answer.json()

    def post(
        self,
        path: str,
        body: Any = None,
        status: int = 200,
        role: Role = Role.ADMIN,
        headers: Mapping[str, str] = {},
    ) -> Any:
        said = {} if body is None else {"json": body}
        answer = self.http.post(path, headers={**self.headers(role), **headers}, **said)
        assert answer.status_code == status, answer.text
        return answer.json()

    def add(self, name: str, state: str = "available", **more: Any) -> Any:
        body = {"name": name, "sku": "sim-a100x8", "state": state, **more}
        if state == "allocated":
            body.setdefault("instances", ["vm-1"])
        return self.post("/v1/machines", body, 201)

    def audit(self, machine: str | None = None) -> list[Any]:
        query = "" if machine is None else f"&machine={machine}"
        return list(self.get(f"/v1/audit?limit=500{query}")["items"])

    def machine(self, name: str) -> Machine:
        with self.db.read() as session:
            return machines.get(session, name)

    def abort_reason(self, validation: str) -> str | None:
        with self.db.read() as session:
            return validations.run_of(session, validations.get(session, validation)).abort_reason


@pytest.fixture
def services_on(tmp_path: Path) -> Callable[[Database], Services]:
    (tmp_path / "plans").mkdir()
    (tmp_path / "plans" / "standard.yaml").write_text("plan: standard\nstages:\n  - [gpu_inventory]\n")

    def make(db: Database) -> Services:
        return Services(db, EvidenceFolder(tmp_path / "evidence"), Library([tmp_path]), lab=Rack())

    return make


@pytest.fixture
def api(sqlite_url: str, services_on: Callable[[Database], Services]) -> Iterator[Api]:
    database = Database(sqlite_url)
    yield Api(services_on(database))
    database.close()


@pytest.fixture
def api_on_both(db: Database, services_on: Callable[[Database], Services]) -> Api:
    """For tests of what two databases could do differently."""
    return Api(services_on(db))
