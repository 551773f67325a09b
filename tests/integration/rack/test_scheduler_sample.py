"""The sample of docs/scheduler.md, as it stands there, as the scheduler of a simulated rack."""

import base64
import re
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import yaml

from fleet.settings import load
from tests.integration.rack.service import Service

PAGE = (Path(__file__).parents[3] / "docs" / "scheduler.md").read_text()


def block(language: str) -> str:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)[0]


def test_the_settings_on_the_page_are_settings(tmp_path: Path) -> None:
    (tmp_path / "fleet.yaml").write_text(block("yaml"))
    settings = load(tmp_path / "fleet.yaml")
    assert settings.scheduler is not None
    assert settings.attention is not None


class Sample:
    """The scheduler of the page, with a port of its own that it may or may not listen on yet."""

    def __init__(self, folder: Path) -> None:
        self.program = folder / "scheduler.py"
        self.program.write_text(block("python"))
        self.secret = "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()
        (folder / "secret").write_text(self.secret + "\n")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/fleet"
        rules = {"url": self.url, "secret_ref": f"file:{folder}/secret", "deadline_s": 120}
        self.config = folder / "fleet.yaml"
        self.config.write_text(yaml.safe_dump({"scheduler": rules}))

    @contextmanager
    def up(self, service: Service) -> Iterator["Sample"]:
        token = service.post("/v1/tokens", {"name": "scheduler", "role": "control-plane"})["token"]
        env = {"FLEET_URL": service.profile["url"], "FLEET_TOKEN": token, "WEBHOOK_SECRET": self.secret}
        command = [sys.executable, str(self.program), str(self.port)]
        with subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            self.process = process
            try:
                yield self
            finally:
                process.kill()

    def place(self, instance: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(instance + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()


@pytest.fixture
def sample(tmp_path: Path) -> Sample:
    return Sample(tmp_path)


def states(service: Service, machine: str) -> list[str]:
    """Of its notices, the newest first."""
    return [f"{row['kind']} {row['state']}" for row in service.items(f"/v1/notices?machine={machine}")]


def test_a_scheduler_that_was_away_is_waited_for_and_places_only_what_it_may(sample: Sample, tmp_path: Path) -> None:
    service = Service(tmp_path / "home", 3)
    service.start("--config", str(sample.config))
    try:
        waiting = service.validate("lab-02")  # lab-01 has a tenant
        service.in_phase(waiting, "withdrawal")
        pending = ["pool.withdrawn pending", "pool.returned pending"]
        service.until(lambda: service.items("/v1/notices?machine=lab-02")[0]["last_error"], 30.0, lambda: "not tried")
        assert (states(service, "lab-02"), service.test_vms()) == (pending, [])

        with sample.up(service):
            phases = [entry["phase"] for entry in service.settled(waiting)["phases"]]
            assert phases[:3] == ["queued", "withdrawal", "preflight"]
            assert service.validation(waiting)["verdict"] == "passed"
            service.until(
                lambda: states(service, "lab-02")[0] == "pool.returned acknowledged", 30.0, lambda: "not told"
            )
            assert sample.place("vm-1") == "lab-02"
            assert [i["id"] for i in service.machine("lab-02")["instances"]] == ["vm-1"]

            service.post("/v1/machines/lab-03/hold", {"reason": "hands inside"})
            assert sample.place("vm-2") == "None"  # whether it was told, or had to be refused
            forged = httpx.post(sample.url, json={"data": {"notices": []}}, headers={"webhook-signature": "v1,AAAA"})
            assert forged.status_code == 401
    finally:
        service.stop()
