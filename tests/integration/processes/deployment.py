"""The service as a provider runs it: two `fleet serve` and two `fleet worker` on one PostgreSQL, a simulated rack beside them.
The processes reach the database through a proxy that a test can pull at; the test itself goes straight to it."""

import json
import os
import re
import signal
import subprocess
import sys
import tomllib
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import sqlalchemy as sa

from fleet.app import parts, rack
from fleet.core.clock import Deadline
from fleet.settings import load
from fleet.store import tokens
from fleet.store.database import Database
from fleet.store.tables import RunRow, ValidationRow, WorkerRow
from fleet.store.upgrade import upgrade
from tests import postgres
from tests.integration.processes.proxy import Proxy
from tests.integration.rack import records
from tests.integration.rack.crashing import PLAYBOOKS, RULES

FLEET = str(Path(sys.executable).with_name("fleet"))
_TAKES = re.compile(r"vfio-pci (\S+): enabling device")


@dataclass
class Part:
    """One process of the service, and where it writes."""

    name: str
    folder: Path
    process: subprocess.Popen[bytes]

    @property
    def said(self) -> str:
        return (self.folder / "log").read_text()

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Of its log, as far as they are whole."""
        return [json.loads(line) for line in self.said.splitlines() if line.startswith("{") and line.endswith("}")]

    def end(self, by: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(signal.SIGCONT)
        self.process.send_signal(by)
        return self.process.wait(60)


@dataclass
class Api(Part):
    token: str

    def ask(self, method: str, path: str, body: Any = None, key: str | None = None) -> httpx.Response:
        url = tomllib.loads((self.folder / "profile.toml").read_text())["url"]
        headers = {"Authorization": f"Bearer {self.token}", "Idempotency-Key": key or uuid.uuid4().hex}
        return httpx.request(method, url + path, json=body, headers=headers, timeout=60)


@dataclass
class Deployment:
    server: postgres.Server
    proxy: Proxy
    db: Database
    lab: rack.LabClient
    folder: Path
    apis: list[Api] = field(default_factory=list)
    workers: list[Part] = field(default_factory=list)

    def validate(self, machine: str, plan: str = "short", api: int = 0) -> str:
        answer = self.apis[api].ask("POST", "/v1/validations", {"machine": machine, "plan": plan})
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    def validation(self, id_: str) -> ValidationRow:
        with self.db.read() as session:
            return session.get_one(ValidationRow, id_)

    def run(self, validation: str) -> RunRow:
        with self.db.read() as session:
            return session.get_one(RunRow, session.get_one(ValidationRow, validation).run)

    def until(self, reached: Callable[[], Any], within_s: float = 60.0) -> None:
        for _ in Deadline.after(within_s).poll(0.05):
            if reached():
                return
        said = "\n".join(f"== {part.name}\n{part.said[-2500:]}" for part in (*self.apis, *self.workers))
        raise AssertionError(f"it has not come to that:\n{said}")

    def in_checks(self, id_: str) -> None:
        self.until(lambda: self.run(id_).phase == "checks")

    def all_passed(self, ids: list[str]) -> None:
        """Each once, with the machine in the pool again, one test VM made for it by the host and none left."""
        self.until(lambda: all(self.validation(id_).verdict for id_ in ids), 90.0)
        for id_ in ids:
            settled = records.settled(self.db, id_)
            assert settled is not None
            assert (settled.verdict, settled.state, settled.tickets) == ("passed", "available", ()), settled.reason
            assert settled.phases.count("settled") == 1
            machine = self.validation(id_).machine
            assert self.test_vms_made(machine) == self.validations_of(machine)
            assert self.test_vms_on(machine) == []

    def test_vms_made(self, machine: str) -> int:
        """By the host's own kernel log: libvirt takes each device when it creates a VM."""
        log = (self.folder / f"lab/machines/{machine}/root/var/log/kmsg").read_text()
        taken = _TAKES.findall(log)
        return taken.count(taken[0]) if taken else 0

    def test_vms_on(self, machine: str) -> list[str]:
        """What the rack itself says: domains that are nobody's instance."""
        rows = {row["name"]: row["domains"] for row in self.lab.machines()}
        return [domain["name"] for domain in rows[machine] if domain["instance"] is None]

    def validations_of(self, machine: str) -> int:
        with self.db.read() as session:
            counted = sa.select(sa.func.count()).where(ValidationRow.machine == machine)
            return session.scalar(counted) or 0

    def worker_of(self, name: str | None) -> Part:
        """`name`: as on the rows, HOST-PID-NUMBER."""
        return next(part for part in self.workers if str(part.process.pid) in str(name).split("-"))

    def follow(self, server: postgres.Server) -> None:
        """The test's own connections go there from now on."""
        self.db.close()
        self.db = Database(server.url)

    def workers_up(self) -> set[str]:
        with self.db.read() as session:
            return set(session.scalars(sa.select(WorkerRow.name)))

    def end(self) -> None:
        """All processes together, since each takes its time."""
        left = [part for part in (*self.apis, *self.workers) if part.process.poll() is None]
        for part in left:
            part.process.send_signal(signal.SIGCONT)
            part.process.send_signal(signal.SIGTERM)
        for part in left:
            try:
                part.process.wait(30)
            except subprocess.TimeoutExpired:
                part.process.kill()
                part.process.wait()
        self.db.close()


@contextmanager
def running(folder: Path, binaries: Path, machines: int) -> Iterator[Deployment]:
    with ExitStack() as stack:
        server = stack.enter_context(postgres.running(binaries, keeps_commits=True))
        proxy = Proxy(server.socket)
        stack.callback(proxy.close)
        manifest = stack.enter_context(rack.running(folder / "lab", machines + 1))  # the first has a tenant
        db = Database(server.url)
        upgrade(db)
        config = folder / "fleet.yaml"
        image = rack.hypervisor(load(None, {}).hypervisor, manifest).model_dump(mode="json")
        hypervisor = {name: image[name] for name in ("image", "image_format", "image_digest")}
        budgets = {"per_rack": 16, "per_power_feed": 16}
        asked = {
            **RULES,
            "data_dir": str(folder / "home"),
            "database": proxy.url,
            "listen": "127.0.0.1:0",
            "playbooks": {"directories": [str(PLAYBOOKS)]},
            "hypervisor": hypervisor,
            "budgets": budgets,
        }
        config.write_text(json.dumps(asked))
        settings = load(config, {})
        parts.data_directory(settings)
        records.ready(db, settings, manifest)
        site = Deployment(server, proxy, db, rack.client(manifest), folder)
        stack.callback(site.lab.close)
        stack.callback(site.end)
        with db.begin() as session:
            token = tokens.create(session, "test", "admin")[1]
        for number in (1, 2):
            site.apis.append(Api(*_start(folder, "serve", number, config), token))
            site.workers.append(Part(*_start(folder, "worker", number, config)))
        site.until(lambda: len(site.workers_up()) == 2 and all("is up at" in api.said for api in site.apis))
        yield site


def _start(folder: Path, command: str, number: int, config: Path) -> tuple[str, Path, subprocess.Popen[bytes]]:
    here = folder / f"{command}-{number}"
    here.mkdir()
    env = {name: value for name, value in os.environ.items() if not name.startswith("FLEET_")}
    env |= {"FLEET_PROFILE": str(here / "profile.toml")}
    with (here / "log").open("wb") as log:
        process = subprocess.Popen(
            [FLEET, command, "--config", str(config)], env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    return here.name, here, process
