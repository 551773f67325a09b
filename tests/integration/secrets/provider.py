"""A provider's site in which every secret is a planted one, the service on it with a simulated rack, and things that go wrong."""

import base64
import io
import json
import secrets
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import sqlalchemy as sa
import trustme
import yaml

from fleet.cli import root
from fleet.store.database import Database
from fleet.store.tables import Base, ValidationRow
from tests.integration.rack.service import Service
from tests.integration.secrets.planted import Planted, new_key
from tests.integration.secrets.watching import Watch, watching

ENVIRONMENT = "FLEET_TEST_HOOK_SECRET"


class Guarded(Service):
    def request(self, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        profile = self.profile
        said = {"Authorization": f"Bearer {profile['token']}", **headers}
        trust = ssl.create_default_context(cafile=profile["ca"])
        return httpx.request(method, profile["url"] + path, json=body, headers=said, timeout=30, verify=trust)


@dataclass
class Site:
    folder: Path
    planted: Planted = field(default_factory=Planted)
    settings: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)

    def secret(self, name: str, text: str) -> str:
        """Planted in a file; the reference to it."""
        (self.folder / name).write_text(self.planted.plant(name, text) + "\n")
        return f"file:{self.folder / name}"

    @property
    def config(self) -> Path:
        file = self.folder / "fleet.yaml"
        file.write_text(yaml.safe_dump(self.settings))
        return file


def webhook_secret() -> str:
    return "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()


def word() -> str:
    return "Pl4nted-" + secrets.token_hex(16)


def make_site(folder: Path, receivers: str) -> Site:
    """With everything that is the same whatever the database."""
    site = Site(folder)
    authority = trustme.CA()
    pair = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    pair.cert_chain_pems[0].write_to_path(str(folder / "tls.crt"))
    site.secret("tls-key", pair.private_key_pem.bytes().decode())
    site.environment[ENVIRONMENT] = site.planted.plant("hook-secret", webhook_secret())
    site.settings = {
        "log": {"level": "debug"},
        "network": {
            "certificate": str(folder / "tls.crt"),
            "key": str(folder / "tls-key"),
            "ca": str(folder / "ca.pem"),
        },
        "validation": {"default_plan": "quick", "abort_retries_s": [3600]},
        "scheduler": {"url": f"{receivers}/scheduler", "secret_ref": site.secret("scheduler-secret", webhook_secret())},
        "attention": {
            "url": f"{receivers}/attention/{site.planted.plant('secret in a url', word())}",
            "secret_ref": site.secret("attention-secret", webhook_secret()),
        },
        "hooks": [
            {"name": "partition", "url": f"{receivers}/hook", "secret_ref": f"env:{ENVIRONMENT}"},
            {"name": "environment", "command": ["/usr/bin/env"]},  # its receipt is all that it was given
        ],
    }
    return site


@dataclass
class Run:
    """A service that has done its work, and where to look for what it should have kept to itself."""

    site: Site
    service: Guarded
    watch: Watch
    database: Callable[[], Database]
    evidence: Callable[[], list[tuple[str, bytes]]]
    database_files: Callable[[], list[Path]]
    said: dict[str, list[tuple[str, str]]] = field(default_factory=lambda: {"api": [], "cli": [], "tickets": []})

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        answer = self.service.request(method, path, body, **headers)
        place = "tickets" if path.startswith("/v1/tickets") else "api"
        self.said[place].append((f"{method} {path}", f"{dict(answer.headers)} {answer.text}"))
        return answer

    def fleet(self, *arguments: str, token: str | None = None) -> str:
        """The command line, in this process: a token in its arguments is the caller's own doing."""
        profile = self.service.profile
        here = ("--url", profile["url"], "--ca", profile["ca"], "--token", token or profile["token"])
        with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
            root.run([*arguments, *here])
        said = out.getvalue() + err.getvalue()
        self.said["cli"].append((" ".join(arguments), said))
        return said

    def logs(self) -> list[tuple[str, bytes]]:
        home = self.service.home
        files = [*home.glob("fleet.log*"), home / "out.log", home / "lab" / "lab.log"]
        return [(file.name, file.read_bytes()) for file in files]

    def rows(self) -> list[tuple[str, str]]:
        """Every row of every table, as its columns are."""
        db = self.database()
        try:
            with db.read() as session:
                return [
                    (f"table {table.name}", repr(tuple(row)))
                    for table in Base.metadata.sorted_tables
                    for row in session.execute(sa.select(table))
                ]
        finally:
            db.close()

    def settled(self, *validations: str) -> list[str]:
        """Their verdicts; until then each test VM's keys become planted ones, too."""
        db = self.database()

        def over() -> bool:
            with db.read() as session:
                found = session.execute(sa.select(ValidationRow.id, ValidationRow.secrets, ValidationRow.verdict)).all()
            for id_, keys, _ in found:
                for name, key in (keys or {}).items():
                    if name.endswith("_private"):
                        self.site.planted.plant(f"{name} of {id_}", key)
            return all(verdict for id_, _, verdict in found if id_ in validations)

        try:
            self.service.until(over, 120.0, lambda: str([self.service.validation(v)["phase"] for v in validations]))
        finally:
            db.close()
        return [str(self.service.validation(id_)["verdict"]) for id_ in validations]


@contextmanager
def at_work(site: Site, **places: Callable[[], Any]) -> Iterator[Run]:
    service = Guarded(site.folder / "home", 4, site.environment)
    service.start("--config", str(site.config))
    try:
        site.planted.plant("login key", (service.home / "lab" / "login_key").read_text())
        site.planted.plant("admin token", service.profile["token"])
        run = Run(site, service, Watch(site.planted, {service.pids()["service"]}), **places)
        with watching(run.watch):
            yield run
    finally:
        service.stop()


def break_things(run: Run) -> None:
    """A whole validation that passes, one that fails, and as many other things as possible that do not work."""
    site, service = run.site, run.service
    service.break_("lab-04", "faulty-gpu")
    good, bad = service.validate("lab-02", "quick"), service.validate("lab-04", "quick")

    wrong_key = site.secret("wrong-key", new_key())
    no_key = site.secret("no-key", word())
    (entry,) = [
        m for m in json.loads((service.home / "lab" / "lab.json").read_text())["machines"] if m["name"] == "lab-03"
    ]
    for name, reference in (("bad-login", wrong_key), ("bad-key", no_key)):
        ssh = {key: entry[key] for key in ("address", "port", "user", "host_key")} | {"key_ref": reference}
        row = {key: entry[key] for key in ("sku", "slots", "scratch_disk")} | {"name": name, "ssh": ssh}
        assert run.ask("POST", "/v1/machines", row).status_code == 201
        run.fleet("machine", "check", name)
    refused = [service.validate(name, "quick") for name in ("bad-login", "bad-key")]

    pasted = site.planted.plant("pasted key", new_key())
    for ssh in ({"key_ref": pasted}, {"password": site.planted.plant("pasted password", word())}):
        row = {
            "name": "pasted",
            "sku": entry["sku"],
            "ssh": {**ssh, "address": "10.0.0.1", "host_key": entry["host_key"]},
        }
        assert run.ask("POST", "/v1/machines", row).status_code == 422
        assert run.ask("POST", "/v1/machines/import", {"machines": [row]}).status_code == 422
        file = site.folder / "machines.yaml"
        file.write_text(yaml.safe_dump([row]))
        assert "nothing was imported" in run.fleet("machine", "import", str(file))
    stranger = site.planted.plant("another service's token", "flt_" + secrets.token_urlsafe(32))
    assert run.ask("GET", "/v1/site", Authorization=f"Bearer {stranger}").status_code == 401
    assert run.ask("POST", "/v1/pause", {"reason": "no"}, Authorization=f"Bearer {stranger}").status_code == 401
    assert run.ask("GET", f"/v1/site?token={stranger}").status_code == 422
    run.fleet("machine", "list", token=stranger)
    made = service.request("POST", "/v1/tokens", {"name": "x", "role": "viewer"}, **{"Idempotency-Key": "once"}).json()
    viewer = site.planted.plant("viewer's token", made["token"])
    assert (
        run.ask("POST", "/v1/tokens", {"name": "x", "role": "viewer"}, **{"Idempotency-Key": "once"}).status_code == 409
    )
    assert run.ask("POST", "/v1/pause", {"reason": "no"}, Authorization=f"Bearer {viewer}").status_code == 403

    assert run.settled(good, bad, *refused) == ["passed", "failed", "aborted", "aborted"]
    read_everything(run, good, bad, *refused)


def read_everything(run: Run, *validations: str) -> None:
    for path in (
        "machines",
        "validations",
        "tickets",
        "attention",
        "notices",
        "approvals",
        "audit",
        "inspections",
        "tokens",
    ):
        page = run.ask("GET", f"/v1/{path}?limit=200").json()
        if path in ("machines", "tickets", "notices"):
            for row in page["items"]:
                run.ask("GET", f"/v1/{path}/{row['id']}")
    for path in ("/v1/site", "/openapi.json", "/healthz", "/v1/lab/machines"):
        run.ask("GET", path)
    for id_ in validations:
        run.ask("GET", f"/v1/validations/{id_}")
        run.ask("GET", f"/v1/validations/{id_}/logs")
        run.fleet("validation", "show", id_)
        run.fleet("validation", "logs", id_)
    for noun in ("machine", "validation", "ticket", "attention", "notice", "audit", "token", "approval"):
        run.fleet(noun, "list")
        run.fleet(noun, "list", "--json")
    run.fleet("audit", "export")
    run.fleet("site", "show")
