"""No secret is anywhere but where it was put: every output of a service at work is searched for each of them."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from fleet.store.database import Database
from fleet.store.evidence.bucket import connect
from tests import postgres
from tests.integration.secrets import provider
from tests.integration.secrets.planted import Planted, new_key
from tests.integration.secrets.provider import Run
from tests.integration.secrets.receivers import chatty
from tests.integration.secrets.watching import Watch

CANARY = "C4nary-a-secret-that-somebody-said-aloud"


def on_sqlite(folder: Path, receivers: str) -> Iterator[Run]:
    site = provider.make_site(folder, receivers)
    root = folder / "home" / "evidence"

    def evidence() -> list[tuple[str, bytes]]:
        return [(f.name, f.read_bytes()) for f in root.rglob("*") if f.is_file()]

    def files() -> list[Path]:
        return list((folder / "home").glob("fleet.sqlite*"))

    def database() -> Database:
        return Database(f"sqlite:///{folder}/home/fleet.sqlite")

    with provider.at_work(site, database=database, evidence=evidence, database_files=files) as run:
        yield run


def on_postgresql(folder: Path, receivers: str, server: str) -> Iterator[Run]:
    """And with a bucket for the evidence."""
    from moto.server import ThreadedMotoServer

    site = provider.make_site(folder, receivers)
    user, password = f"secrets_{os.getpid()}", provider.word()
    url = postgres.lock(server, user, password)
    store = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    store.start()
    endpoint = "http://{}:{}".format(*store.get_host_and_port())
    site.environment["FLEET_TEST_S3_KEY"] = site.planted.plant("s3-secret-key", provider.word())
    keys = {"access_key_ref": site.secret("s3-access-key", provider.word()), "secret_key_ref": "env:FLEET_TEST_S3_KEY"}
    site.settings["database"] = url
    site.settings["database_password_ref"] = site.secret("database-password", password)
    site.settings["evidence"] = {"s3": {"endpoint": endpoint, "bucket": "evidence", **keys}}
    s3 = connect(endpoint, "us-east-1", lambda: ("access", "secret"))
    s3.create_bucket(Bucket="evidence")

    def evidence() -> list[tuple[str, bytes]]:
        found = s3.list_objects_v2(Bucket="evidence").get("Contents", [])
        return [(o["Key"], s3.get_object(Bucket="evidence", Key=o["Key"])["Body"].read()) for o in found]

    def database() -> Database:
        return Database(url, password=lambda: password)

    def files() -> list[Path]:
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute("CHECKPOINT")
            (data,) = connection.execute("SHOW data_directory").fetchone() or ()
        return [Path(data).parent / "log", *(f for f in Path(data).rglob("*") if f.is_file())]

    try:
        with provider.at_work(site, database=database, evidence=evidence, database_files=files) as run:
            yield run
    finally:
        store.stop()
        postgres.unlock(server, user)


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.real)])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """After a validation that passed, one that failed, two that were aborted, and whatever else can go wrong."""
    folder = tmp_path_factory.mktemp("secrets")
    with chatty() as (receivers, asked):
        if request.param == "sqlite":
            work = on_sqlite(folder, receivers)
        else:
            work = on_postgresql(folder, receivers, request.getfixturevalue("postgres_url"))
        for made in work:
            provider.break_things(made)
            assert asked.keys() == {"hook", "scheduler", "attention"}
            yield made


def test_not_in_the_logs(run: Run) -> None:
    logs = dict(run.logs())
    assert b"api.request" in logs["fleet.log"]
    assert run.site.planted.leaks(logs) == []


def test_not_in_answers_of_the_api(run: Run) -> None:
    assert len(run.said["api"]) > 30
    assert run.site.planted.leaks(run.said["api"]) == []


def test_not_in_what_the_command_line_prints(run: Run) -> None:
    assert run.site.planted.leaks(run.said["cli"]) == []


def test_not_in_tickets(run: Run) -> None:
    assert any("gpu_burn" in text for _, text in run.said["tickets"])
    assert run.site.planted.leaks(run.said["tickets"]) == []


def test_not_in_metrics(run: Run) -> None:
    text = run.service.request("GET", "/metrics").text
    assert "fleet_" in text
    assert run.site.planted.leaks({"/metrics": text}) == []


def test_not_in_the_database(run: Run) -> None:
    rows = run.rows()
    assert any("environment" in text for place, text in rows if place == "table validation")  # the hook's receipt
    assert run.site.planted.leaks(rows) == []


def test_not_in_evidence(run: Run) -> None:
    files = run.evidence()
    assert any(b"gpu" in content for _, content in files)
    assert run.site.planted.leaks(files) == []


def test_not_in_command_lines_and_not_in_the_environment_of_other_processes(run: Run) -> None:
    assert run.watch.rounds > 50
    assert run.watch.leaks == set()


def test_the_search_finds_what_is_said_aloud(run: Run) -> None:
    """On each surface, by the ways that a person or a program has to write there."""
    canary = Planted()
    canary.plant("canary", CANARY)
    run.service.post("/v1/machines/lab-03/hold", {"reason": f"the password is {CANARY}"})
    ticket = run.service.items("/v1/tickets")[0]["id"]
    run.service.post(f"/v1/tickets/{ticket}/fixed", {"note": CANARY})
    spoken = run.ask("GET", f"/v1/machines/lab-03?{CANARY}=1", **{"X-Request-Id": CANARY})
    watch = Watch(canary, set())
    with subprocess.Popen([sys.executable, "-c", "input()", CANARY], stdin=subprocess.PIPE, env={"X": CANARY}) as child:
        watch.look()
        assert child.stdin is not None
        child.stdin.close()
    found: dict[str, Any] = {
        "log": run.logs(),
        "api": [("", spoken.text)],
        "cli": [("", run.fleet("machine", "show", "lab-03"))],
        "ticket": [("", run.fleet("ticket", "show", ticket))],
        "database": run.rows(),
    }
    assert [place for place, texts in found.items() if not canary.leaks(texts)] == []
    assert {leak.split(" of ")[0] for leak in watch.leaks} == {
        "canary in the command line",
        "canary in the environment",
    }


@pytest.mark.parametrize(
    "text",
    [
        f"a line with {CANARY} in it",
        f"https://db/?password={CANARY}&x=y",
        "eHl6" + __import__("base64").b64encode(b"ab" + CANARY.encode() + b"cd").decode(),
        CANARY.encode().hex(),
    ],
)
def test_the_search_finds_it_in_other_forms(text: str) -> None:
    planted = Planted()
    planted.plant("canary", CANARY)
    assert planted.leaks({"here": text}) == ["canary in here"]


def test_a_key_is_found_by_any_of_its_own_lines_and_no_other_key_is() -> None:
    planted = Planted()
    key = planted.plant("key", new_key())
    assert planted.found(key.splitlines()[3]) == ["key"]
    assert planted.found(new_key()) == []


def test_not_in_the_files_of_the_database(run: Run) -> None:
    """SQLite's hold no test VM's key either, not even in what is free again. PostgreSQL's do, until it cleans up by itself."""
    run.service.stop()
    files = {file.name: file.read_bytes() for file in run.database_files()}
    assert any(b"gpu_burn" in content for content in files.values())
    on_server = "database" in run.site.settings
    leaks = run.site.planted.leaks(files)
    assert [leak for leak in leaks if not (on_server and "_private of val-" in leak)] == []
