"""The command line against a stub of the service."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fleet.cli import root
from tests.unit.cli.stub import StubService, serving


@pytest.fixture
def service() -> Iterator[StubService]:
    with serving() as stub:
        yield stub


@dataclass
class Ran:
    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Fleet = Callable[..., Ran]


@pytest.fixture
def fleet(
    service: StubService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Fleet:
    """Run `fleet ...` against the stub service, in this process."""
    monkeypatch.setenv("FLEET_URL", service.url)
    monkeypatch.setenv("FLEET_TOKEN", "flt_test")
    monkeypatch.setenv("FLEET_PROFILE", str(tmp_path / "profile.toml"))

    def run(*arguments: str) -> Ran:
        status = root.run(arguments)
        return Ran(status, *capsys.readouterr())

    return run
