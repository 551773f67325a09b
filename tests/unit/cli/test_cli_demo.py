"""The demonstration against a stub of the service: what it does once, what it does not repeat, when it is over."""

import pytest

from fleet.cli import demo
from fleet.cli.client import Client
from fleet.profile import Profile
from tests.unit.cli.stub import StubService


@pytest.fixture
def client(service):
    with Client(Profile(service.url, "flt_test")) as made:
        yield made


def _machine(service: StubService, name: str, state: str, left: str | None = None) -> None:
    because = {"instance": left} if left else {}
    service.on("GET", f"/v1/machines/{name}", {"name": name, "state": state, "vacated_because": because})


def _validations(service: StubService, *pages: list[dict]) -> None:
    """The stub knows paths, not queries: every machine has the same validations."""
    service.on("GET", "/v1/validations", *({"items": page, "next": None} for page in pages))


def _validation(id_: str, verdict: str | None, trigger: str = "vacated") -> dict:
    return {"id": id_, "verdict": verdict, "reason": "because", "trigger": trigger, "phase": "checks", "progress": {}}


def _posted(service: StubService) -> list[tuple[str, str]]:
    return [(r.path, r.body.get("id") or r.body.get("fault")) for r in service.requests if r.method == "POST"]


def test_tenants_first_then_faults_then_departures(client, service):
    for story in demo.STORIES:
        _machine(service, story.machine, "available")
        service.on("POST", f"/v1/lab/{story.machine}/break", {})
    _validations(service, [])
    service.on("POST", "/v1/events", {}, status=202)
    demo.begin(client)
    assert _posted(service) == [
        ("/v1/events", "demo-placed-lab-02"),
        ("/v1/events", "demo-placed-lab-03"),
        ("/v1/lab/lab-03/break", "faulty-gpu"),
        ("/v1/events", "demo-placed-lab-04"),
        ("/v1/lab/lab-04/break", "vm-not-placed"),
        ("/v1/events", "demo-vacated-lab-02"),
        ("/v1/events", "demo-vacated-lab-03"),
        ("/v1/events", "demo-vacated-lab-04"),
    ]


def test_what_has_begun_is_not_begun_again(client, service, capsys):
    for story in demo.STORIES:
        _machine(service, story.machine, "vacated", left=story.instance)
    _validations(service, [])
    demo.begin(client)
    assert _posted(service) == []
    assert "earlier start" in capsys.readouterr().out


def test_a_validation_cut_short_is_not_the_end_of_a_story(client, service, capsys):
    for story in demo.STORIES:
        _machine(service, story.machine, "vacated")
    cut = [_validation("val-1", "aborted")]
    _validations(service, cut, cut, cut, [_validation("val-2", "passed"), *cut])
    found = demo.watch(client)
    assert {name: validation["id"] for name, validation in found.items()} == {
        "lab-02": "val-2",
        "lab-03": "val-2",
        "lab-04": "val-1",  # an abort is what its story is about
    }
    assert "lab-02  was cut short" in capsys.readouterr().out


def test_validations_by_hand_are_no_part_of_it(client, service):
    for story in demo.STORIES:
        _machine(service, story.machine, "available")
    _validations(service, [_validation("val-2", None, trigger="manual"), _validation("val-1", "passed")])
    assert {validation["id"] for validation in demo.watch(client).values()} == {"val-1"}
