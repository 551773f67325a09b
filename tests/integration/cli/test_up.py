"""`fleet up` as a user starts it: a process of its own on a simulated rack, driven by the command line."""

import fcntl
import json
import os
import queue
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fleet.core.clock import Deadline
from fleet.lab import manifest
from fleet.lab.client import LabClient

FLEET = (sys.executable, "-c", "import sys; from fleet.cli import main; sys.exit(main())")
HINTS = "--note 'GPU replaced'"  # the last line of the demonstration


@dataclass
class Home:
    """A user's environment, and the servers started in it."""

    path: Path
    env: dict[str, str]
    servers: list["Server"] = field(default_factory=list)

    def start(self, *arguments: str) -> "Server":
        child = subprocess.Popen(
            [*FLEET, *arguments], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1
        )
        self.servers.append(Server(child))
        return self.servers[-1]

    def fleet(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*FLEET, *arguments], env=self.env, capture_output=True, text=True, timeout=120)

    def json(self, *arguments: str) -> Any:
        return json.loads(self.fleet(*arguments, "--json").stdout)

    @property
    def url(self) -> str:
        """The address in the profile that the service has written."""
        return str(tomllib.loads(Path(self.env["FLEET_PROFILE"]).read_text())["url"])

    def rack_is_free(self) -> bool:
        """Nobody holds the rack's lock: its process has ended."""
        with (self.path / "lab" / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        return True


@dataclass
class Server:
    """A process, and what it has said so far."""

    child: subprocess.Popen[str]
    said: list[str] = field(default_factory=list)
    lines: queue.Queue[str] = field(default_factory=queue.Queue)

    def __post_init__(self) -> None:
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.child.stdout is not None
        for line in self.child.stdout:
            self.lines.put(line)
        self.lines.put("")

    def wait_for(self, words: str, within_s: float = 90.0) -> str:
        """The first line from here on with these words."""
        ends = time.monotonic() + within_s
        while True:
            try:
                line = self.lines.get(timeout=max(0.0, ends - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no {words!r} in: {''.join(self.said)}") from None
            assert line, f"it ended: {''.join(self.said)}"
            self.said.append(line)
            if words in line:
                return line

    def end(self, by: signal.Signals = signal.SIGINT) -> int:
        if self.child.poll() is None:
            self.child.send_signal(by)
        return self.child.wait(60)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("FLEET_")}
    env |= {"FLEET_HOME": str(tmp_path / "home"), "FLEET_PROFILE": str(tmp_path / "profile.toml")}
    made = Home(tmp_path / "home", env)
    yield made
    for server in made.servers:
        if server.child.poll() is None:
            server.end(signal.SIGTERM)


def test_a_directory_that_a_rack_cannot_work_in_is_named(home):
    home.env["FLEET_HOME"] = str(home.path / "of John; $(id)")
    refused = home.fleet("up", "--lab", "2", "--listen", "127.0.0.1:0")
    assert (refused.returncode, "FLEET_HOME=/PATH" in refused.stderr) == (2, True), refused.stderr


def test_a_data_directory_may_have_any_name_without_a_rack(home):
    home.env["FLEET_HOME"] = str(home.path / "100%41 of John?")
    up = home.start("up", "--listen", "127.0.0.1:0")
    up.wait_for("is up")
    assert (home.path / "100%41 of John?" / "fleet.sqlite").is_file()


def test_the_demonstration_ends_in_three_verdicts_and_is_not_repeated(home):
    up = home.start("up", "--lab", "6", "--demo", "--listen", "127.0.0.1:0")
    up.wait_for(HINTS)
    told = "".join(up.said)
    for story in ("lab-02  passed: ", "lab-03  failed: gpu_burn: ", "lab-04  aborted: ", "gpu_burn: running, "):
        assert story in told
    states = {row["id"]: row["state"] for row in home.json("machine", "list")["items"]}
    assert states == {
        "lab-01": "allocated",
        "lab-02": "available",
        "lab-03": "failed",
        "lab-04": "vacated",
        "lab-05": "available",
        "lab-06": "available",
    }
    tickets = home.json("ticket", "list")["items"]
    assert [ticket["machine"] for ticket in tickets] == ["lab-03"]

    records = [file for name in ("fleet.*", "evidence/**/*") for file in home.path.glob(name)]
    assert len(records) > 20
    assert not [file for file in records if file.stat().st_mode & 0o077]

    other = home.fleet("up", "--lab", "6", "--listen", "127.0.0.1:0")
    assert other.returncode == 4
    assert f"is in use by `fleet up`, process {up.child.pid}" in other.stderr

    assert up.end(signal.SIGINT) == 130
    assert home.rack_is_free()
    assert home.fleet("machine", "list").returncode == 5

    again = home.start("up", "--lab", "6", "--demo", "--listen", "127.0.0.1:0")
    again.wait_for(HINTS)
    assert "vacated at an earlier start" in "".join(again.said)
    departures = [
        v for v in home.json("validation", "list", "--machine", "lab-02")["items"] if v["trigger"] == "vacated"
    ]
    assert len(departures) == 1
    assert home.json("ticket", "list")["items"] == tickets
    assert again.end(signal.SIGTERM) == 0


def test_following_a_validation_survives_a_restart_of_the_service(home):
    """The rack goes down with the service, so its guest is booted again: no verdict on the hardware, and never a wrong one."""
    up = home.start("up", "--lab", "2", "--listen", "127.0.0.1:0")
    up.wait_for("fleet is up")
    address = home.url.removeprefix("http://")
    wait = home.start("revalidate", "lab-02", "--wait")
    wait.wait_for("gpu_burn: running")
    assert up.end(signal.SIGTERM) == 0
    wait.wait_for("The service is away")
    home.start("up", "--lab", "2", "--listen", address).wait_for("fleet is up")
    wait.wait_for("lab-02 aborted: ")
    assert wait.child.wait(30) == 3
    assert home.json("machine", "show", "lab-02")["state"] == "available"


def test_a_machine_that_is_taken_says_who_since_when_and_why(home):
    home.start("up", "--lab", "2", "--listen", "127.0.0.1:0").wait_for("fleet is up")
    allocated = home.fleet("revalidate", "lab-01")
    assert allocated.returncode == 4
    assert "tenant-1 since 20" in allocated.stderr
    assert home.fleet("machine", "hold", "lab-02", "--reason", "fans").returncode == 0
    held = home.fleet("revalidate", "lab-02", "--wait")
    assert held.returncode == 4
    assert "held by first-admin since 20" in held.stderr
    assert ": fans" in held.stderr
    assert home.fleet("machine", "show", "lab-99").returncode == 4
    assert home.fleet("lab", "break", "lab-02", "no-such-fault").returncode == 4
    assert home.fleet("machine", "list", "--token", "flt_wrong").returncode == 4


def test_tenants_domains_come_and_go_as_the_events_say(home):
    home.start("up", "--lab", "2", "--listen", "127.0.0.1:0").wait_for("fleet is up")
    rack = manifest.read(home.path / "lab" / "lab.json").control
    client = LabClient(rack.url, rack.secret)

    def domains() -> list[str]:
        row = next(machine for machine in client.machines() if machine["name"] == "lab-02")
        return [domain["instance"] for domain in row["domains"] if domain["instance"]]

    def seen(wanted: list[str]) -> bool:
        return any(domains() == wanted for _ in Deadline.after(30).poll(0.05))

    assert home.fleet("machine", "add", "not-in-the-rack", "--sku", "sim-a100x8").returncode == 0
    assert home.fleet("event", "placed", "lab-02", "--instance", "t2").returncode == 0
    assert seen(["t2"])
    assert home.fleet("event", "vacated", "lab-02", "--instance", "t2", "--cause", "migrate").returncode == 0
    assert seen([])
    assert home.fleet("event", "kept", "lab-02", "--instance", "t2").returncode == 0
    assert seen(["t2"])
    back = (home.json("machine", "show", "lab-02") for _ in Deadline.after(60).poll(0.1))
    assert any((m["state"], [i["id"] for i in m["instances"]]) == ("allocated", ["t2"]) for m in back)
    client.close()


@pytest.mark.parametrize("after", ["fleet.sqlite.lock", "lab/lock", "lab/lab.json"])
def test_ctrl_c_in_the_middle_of_the_start_ends_all_of_it(home, after):
    up = home.start("up", "--lab", "6", "--listen", "127.0.0.1:0")
    ends = time.monotonic() + 60
    while not (home.path / after).exists():
        assert time.monotonic() < ends
        time.sleep(0.002)
    assert up.end(signal.SIGINT) == 130
    assert not (home.path / "lab").exists() or home.rack_is_free()


def test_the_parts_apart_do_the_same(home):
    serve = home.start("serve", "--listen", "127.0.0.1:0")
    serve.wait_for("fleet is up")
    worker = home.start("worker")
    worker.wait_for("worker.up")
    assert home.json("machine", "list") == {"items": [], "next": None}
    assert home.fleet("up").returncode == 4
    assert (worker.end(signal.SIGTERM), serve.end(signal.SIGINT)) == (0, 130)


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("--listen", "0.0.0.0:0"), 2, "--insecure-listen"),
        (("--listen", "8470"), 2, "is not ADDRESS:PORT"),
        (("--database", "mysql://x/y"), 2, "mysql is not supported"),
        (("--demo",), 2, "--lab 6"),
        (("--config", "/no/such.yaml"), 2, "cannot be read"),
    ],
)
def test_a_start_that_cannot_be_is_a_sentence(home, words, status, said):
    ran = home.fleet("up", *words)
    assert ran.returncode == status
    assert said in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_port_that_is_taken(home):
    home.start("serve", "--listen", "127.0.0.1:0").wait_for("fleet is up")
    taken = home.url.removeprefix("http://")
    ran = home.fleet("up", "--listen", taken, "--database", f"sqlite:///{home.path}/other.sqlite")
    assert ran.returncode == 2
    assert "Choose another with --listen" in ran.stderr


def test_settings_name_file_and_key(home, tmp_path):
    file = tmp_path / "fleet.yaml"
    file.write_text("worker: {thread: 1}\n")
    ran = home.fleet("up", "--config", str(file))
    assert (ran.returncode, ran.stderr) == (2, f"fleet: {file}: worker.thread: unknown key; did you mean threads?\n")


def test_a_database_newer_than_the_code_is_left_alone(home):
    home.start("serve", "--listen", "127.0.0.1:0").wait_for("fleet is up")
    home.servers.pop().end()
    with sqlite3.connect(home.path / "fleet.sqlite") as database:
        database.execute("UPDATE alembic_version SET version_num = 'from_the_future'")
    ran = home.fleet("up", "--listen", "127.0.0.1:0")
    assert ran.returncode == 4
    assert "the database is newer than this version" in ran.stderr
