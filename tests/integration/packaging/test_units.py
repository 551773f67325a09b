"""The systemd units: what systemd's own tools say of them, and what they start, started as they start it."""

import base64
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from fleet.app import web
from tests.integration.packaging.units import FOLDER, NAMES, Unit
from tests.needs import need

FLEET = str(Path(sys.executable).with_name("fleet"))
_WORST = 2.0
"""Of 10, in `systemd-analyze security`: what is left is the network, the unit's purpose."""

_ANALYZE = "systemd-analyze (Debian: apt-get install systemd)"


@pytest.fixture
def installed(tmp_path: Path) -> list[Path]:
    """The units, with a program that is there."""
    made = []
    for name in NAMES:
        unit = tmp_path / name.replace("@.", "@1.")
        unit.write_text((FOLDER / name).read_text().replace("/opt/fleet/bin/fleet", FLEET))
        made.append(unit)
    return made


@pytest.mark.real
def test_systemd_understands_every_line(installed: list[Path]) -> None:
    need(_ANALYZE, analyze := shutil.which("systemd-analyze"))
    ended = subprocess.run([str(analyze), "verify", *installed], capture_output=True, text=True)
    ours = [line for line in ended.stderr.splitlines() if "fleet" in line]
    assert (ended.returncode, ours) == (0, [])


@pytest.mark.real
def test_little_is_left_that_they_may_do(installed: list[Path]) -> None:
    need(_ANALYZE, analyze := shutil.which("systemd-analyze"))
    for unit in installed:
        ended = subprocess.run([str(analyze), "security", "--offline=yes", unit], capture_output=True, text=True)
        found = re.search(r"Overall exposure level for .*: ([0-9.]+)", ended.stdout)
        assert found is not None, ended.stdout + ended.stderr
        assert float(found[1]) <= _WORST


def test_the_manager_waits_longer_than_the_service_takes() -> None:
    serve, worker = (int(Unit.read(name).one("TimeoutStopSec")) for name in NAMES)
    assert serve > web._STOP_S + 5
    assert worker > 30  # Worker.stop


@pytest.mark.parametrize("name", NAMES)
def test_what_it_starts_says_when_it_is_up_and_ends_in_order(name: str, tmp_path: Path) -> None:
    unit = Unit.read(name)
    assert (unit.one("Type"), unit.one("KillMode")) == ("notify", "mixed")
    places = {"/opt/fleet/bin/fleet": FLEET, "/etc/fleet": str(tmp_path), "/var/lib/fleet": str(tmp_path / "state")}
    credentials = tmp_path / "credentials"
    credentials.mkdir()
    (credentials / "fleet_scheduler").write_text("whsec_" + base64.b64encode(b"geheim" * 6).decode())
    settings = {
        "listen": "127.0.0.1:0",
        "scheduler": {"url": "https://127.0.0.1:9/", "secret_ref": "credential:fleet_scheduler"},
    }
    (tmp_path / "fleet.yaml").write_text(yaml.safe_dump(settings))
    assert unit.one("LoadCredential").startswith(
        "fleet:/etc/fleet/credentials/"
    )  # a directory: its files are fleet_NAME
    environment = dict(word.split("=", 1) for word in unit.moved("Environment", places))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60)
        environment |= {"NOTIFY_SOCKET": str(tmp_path / "notify"), "CREDENTIALS_DIRECTORY": str(credentials)}
        process = subprocess.Popen(
            [*_powerless(), *unit.moved("ExecStart", places)],
            env=environment,  # and nothing else: not even PATH or HOME
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        try:
            assert manager.recv(100) == b"READY=1"
            process.send_signal(signal.SIGTERM)
            assert manager.recv(100) == b"STOPPING=1"
            assert process.wait(60) == 0
        finally:
            process.kill()
            said = process.communicate()[0]
    assert b"Traceback" not in said
    assert (tmp_path / "state" / "fleet.sqlite").stat().st_mode & 0o077 == 0


def test_wrong_settings_are_not_tried_again(tmp_path: Path) -> None:
    (tmp_path / "fleet.yaml").write_text("wroker: {}")
    for name in NAMES:
        unit = Unit.read(name)
        command = unit.moved("ExecStart", {"/opt/fleet/bin/fleet": FLEET, "/etc/fleet": str(tmp_path)})
        ended = subprocess.run(command, env={"FLEET_HOME": str(tmp_path)}, capture_output=True, text=True, timeout=60)
        assert str(ended.returncode) == unit.one("RestartPreventExitStatus"), ended.stderr
        assert "did you mean worker" in ended.stderr


@pytest.mark.real
@pytest.mark.skipif(os.getuid() != 0, reason="only root may make users, in a file system of its own too")
def test_the_user_of_the_units_is_made(tmp_path: Path) -> None:
    need("systemd-sysusers (Debian: apt-get install systemd)", program := shutil.which("systemd-sysusers"))
    (tmp_path / "etc").mkdir()
    (tmp_path / "usr" / "lib" / "sysusers.d").mkdir(parents=True)
    shutil.copy(FOLDER / "fleet.sysusers", tmp_path / "usr" / "lib" / "sysusers.d" / "fleet.conf")
    ended = subprocess.run([str(program), f"--root={tmp_path}"], capture_output=True, text=True)
    assert (ended.returncode, "not a valid" in ended.stderr) == (0, False), ended.stderr
    users = (tmp_path / "etc" / "passwd").read_text()
    assert {Unit.read(name).one("User") for name in NAMES} == {users.split(":")[0]} == {"fleet"}


def _powerless() -> list[str]:
    """Root without what makes it root: the units' user has no capabilities either."""
    setpriv = shutil.which("setpriv")
    if os.getuid() or setpriv is None:
        return []
    return [setpriv, "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]
