"""`fleet revalidate --wait`: progress, verdicts, a service that goes away, Ctrl-C."""

import os
import signal
import subprocess
import sys

import pytest

from tests.unit.cli.stub import DROPPED, Answer

OPEN = {"id": "val-1", "machine": "lab-02", "plan": "standard", "phase": "place", "why": "asked", "verdict": None}
BURN = {
    **OPEN,
    "phase": "checks",
    "why": "running",
    "progress": {"gpu_burn": {"state": "running", "percent": 40.2, "outcome": None}},
}
CHECK = {"check": "gpu_burn", "mode": "enforce", "outcome": "failed", "reason": "GPU 3: 812 errors", "findings": []}


def _ended(verdict: str) -> dict:
    progress = {"gpu_burn": {"state": "ended", "percent": 100, "outcome": "failed"}}
    return {**OPEN, "phase": "settle", "verdict": verdict, "reason": "because", "checks": [CHECK], "progress": progress}


@pytest.mark.parametrize(("verdict", "status"), [("passed", 0), ("failed", 1), ("aborted", 3)])
def test_the_exit_status_is_the_verdict(fleet, service, verdict, status):
    service.on("POST", "/v1/validations", OPEN, status=202)
    service.on("GET", "/v1/validations/val-1", BURN, _ended(verdict))
    ran = fleet("revalidate", "lab-02", "--wait")
    assert (ran.status, ran.err) == (status, "")
    assert f"lab-02 {verdict}: because" in ran.out
    assert "GPU 3: 812 errors" in ran.out


def test_plain_lines_tell_each_change_once(fleet, service):
    service.on("POST", "/v1/validations", OPEN, status=202)
    service.on("GET", "/v1/validations/val-1", BURN, BURN, _ended("failed"))
    lines = fleet("revalidate", "lab-02", "--wait").out.splitlines()
    assert lines[:4] == ["place: asked", "checks: running", "gpu_burn: running, 40 %", "gpu_burn: failed"]


def test_a_token_that_ends_on_the_way_is_no_absence(fleet, service):
    service.on("POST", "/v1/validations", OPEN, status=202)
    revoked = Answer(401, {"code": "unauthenticated", "detail": "token 'ci' was revoked"})
    service.on("GET", "/v1/validations/val-1", BURN, revoked)
    ran = fleet("revalidate", "lab-02", "--wait")
    assert (ran.status, ran.err.startswith("fleet: token 'ci' was revoked (")) == (4, True)


def test_json_is_the_settled_record_and_nothing_else(fleet, service):
    service.on("POST", "/v1/validations", OPEN, status=202)
    service.on("GET", "/v1/validations/val-1", BURN, _ended("aborted"))
    ran = fleet("revalidate", "lab-02", "--wait", "--json")
    assert (ran.status, ran.json["verdict"]) == (3, "aborted")
    assert "checks: running" in ran.err


def test_a_short_restart_of_the_service_is_waited_for(fleet, service):
    service.on("POST", "/v1/validations", OPEN, status=202)
    away = [DROPPED] * 4 + [Answer(503, {"code": "store-busy", "detail": "starting"})] * 4
    service.on("GET", "/v1/validations/val-1", BURN, *away, _ended("passed"))
    ran = fleet("revalidate", "lab-02", "--wait")
    assert ran.status == 0
    assert "The service is away" in ran.err


def test_a_refused_start_says_who_and_exits_4(fleet, service):
    held = "lab-02 is held by ana since 2026-03-01 10:00:00Z: fans"
    service.problem("POST", "/v1/validations", 409, "refused", detail=held)
    ran = fleet("revalidate", "lab-02", "--wait")
    assert (ran.status, ran.err) == (4, f"fleet: {held}\n")


def test_ctrl_c_stops_following_and_says_how_to_abort(service, tmp_path):
    service.on("POST", "/v1/validations", OPEN, status=202)
    service.on("GET", "/v1/validations/val-1", BURN)
    env = {**os.environ, "FLEET_URL": service.url, "FLEET_TOKEN": "t", "FLEET_PROFILE": str(tmp_path / "none")}
    code = "import sys; from fleet.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "revalidate", "lab-02", "--wait"]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "place: asked\n"
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=30)
    assert child.returncode == 130
    assert "fleet abort val-1 --reason" in err
    assert not [request for request in service.requests if request.path.endswith("/abort")]
