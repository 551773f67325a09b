"""A service of a test's own: `fleet up` with a simulated rack as a real process, and its API over real HTTP."""

import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx

_UP_S = 60.0


class Service:
    """`home` has everything that survives: start, kill and start again as often as a test likes."""

    def __init__(self, home: Path, lab: int, env: Mapping[str, str] = {}) -> None:
        self.home, self.lab = home, lab
        self.env = {
            **{k: v for k, v in os.environ.items() if not k.startswith("FLEET_")},
            "FLEET_HOME": str(home),
            "FLEET_PROFILE": str(home / "profile.toml"),
            **env,
        }
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *more: str) -> None:
        home_log = self.home / "out.log"
        self.home.mkdir(parents=True, exist_ok=True)
        (self.home / "profile.toml").unlink(missing_ok=True)
        command = [
            str(Path(sys.executable).with_name("fleet")),
            "up",
            "--lab",
            str(self.lab),
            "--listen",
            "127.0.0.1:0",
            *more,
        ]
        with home_log.open("ab") as out:
            self.process = subprocess.Popen(command, env=self.env, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        self.until(self._answers, _UP_S, lambda: home_log.read_text()[-3000:])

    def kill(self) -> None:
        """As a power cut to the process: nothing is ended in order."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """Ctrl-C; the exit status."""
        assert self.process is not None
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(60)

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.home / "out.log").read_text()[-3000:]
        try:
            return self.get("/healthz") is not None
        except (OSError, httpx.HTTPError, KeyError, tomllib.TOMLDecodeError):
            return False

    def pids(self) -> dict[str, int]:
        """Of the service and of the rack beside it."""
        assert self.process is not None
        return {"service": self.process.pid, "lab": json.loads((self.home / "lab" / "lab.json").read_text())["pid"]}

    @property
    def profile(self) -> dict[str, str]:
        found = tomllib.loads((self.home / "profile.toml").read_text())
        return {key: str(value) for key, value in found.items()}

    def request(self, method: str, path: str, body: Any = None) -> httpx.Response:
        profile = self.profile
        headers = {"Authorization": f"Bearer {profile['token']}"}
        return httpx.request(method, profile["url"] + path, json=body, headers=headers, timeout=30)

    def get(self, path: str) -> Any:
        answer = self.request("GET", path)
        answer.raise_for_status()
        return answer.json()

    def post(self, path: str, body: Any) -> Any:
        answer = self.request("POST", path, body)
        assert answer.is_success, answer.text
        return answer.json()

    def break_(self, machine: str, fault: str) -> None:
        self.post(f"/v1/lab/{machine}/break", {"fault": fault})

    def mend(self, machine: str, fault: str) -> None:
        self.post(f"/v1/lab/{machine}/mend", {"fault": fault})

    def machine(self, name: str) -> Any:
        return self.get(f"/v1/machines/{name}")

    def validate(self, machine: str, plan: str = "standard") -> str:
        return str(self.post("/v1/validations", {"machine": machine, "plan": plan})["id"])

    def validation(self, id_: str) -> Any:
        return self.get(f"/v1/validations/{id_}")

    def settled(self, id_: str, timeout_s: float = 90.0) -> Any:
        """The validation once it has its verdict."""
        self.until(lambda: self.validation(id_)["verdict"], timeout_s, lambda: str(self.validation(id_)))
        return self.validation(id_)

    def in_phase(self, id_: str, phase: str, timeout_s: float = 60.0) -> None:
        """Until it has reached the phase (or has gone past it)."""

        def reached() -> bool:
            return any(entry["phase"] == phase for entry in self.validation(id_)["phases"])

        self.until(reached, timeout_s, lambda: str(self.validation(id_)), every_s=0.03)

    def items(self, path: str) -> list[Any]:
        return list(self.get(path)["items"])

    def test_vms(self) -> list[tuple[str, str]]:
        """What the rack itself says, not what the service believes: domains that are nobody's instance."""
        rows = self.items("/v1/lab/machines")
        return [(row["name"], d["name"]) for row in rows for d in row["domains"] if d["instance"] is None]

    @staticmethod
    def until(reached: Callable[[], Any], timeout_s: float, otherwise: Callable[[], str], every_s: float = 0.1) -> None:
        end = time.monotonic() + timeout_s
        while not reached():
            assert time.monotonic() < end, otherwise()
            time.sleep(every_s)
