"""What a person can get wrong at the command line, and services that are not ours: a sentence, the documented exit status,
one JSON document, and never a traceback."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from fleet.cli.client import Client
from fleet.cli.exits import CommandError, Exit
from fleet.profile import Profile
from tests.unit.cli.stub import DROPPED

ROW = {
    "id": "node-1",
    "name": "node-1",
    "sku": "x",
    "state": "vacated",
    "since": "2026-03-01T10:00:00Z",
    "why": "w" * 200,
}
ASKED = {"id": "insp-1", "machine": "lab-02", "kind": "check", "taken_up": True, "outcome": None, "result": {}}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("site", "mode", "enforced"), "'enforced' is not one of 'observe', 'enforce'. Try `fleet site mode --help`."),
        (("machine", "list", "--limit", "0"), "'--limit': must be greater than or equal to 1. Try `fleet machine list"),
        (("site", "mode"), "Missing argument 'MODE'. Choose from: observe, enforce. Try `fleet site mode --help`."),
        (
            ("machine", "list", "--", "--json"),
            "unexpected extra argument(s) (--json). Try `fleet machine list --help`.",
        ),
        (("token", "create"), "Missing option '--name'. Try `fleet token create --help`."),
        (("token", "creat"), "No such command 'creat'. Did you mean 'create'? Try `fleet token --help`."),
        (("machine", "show", ""), "the name or id is empty: say which one; `list` shows those that there are"),
        (("token", "revoke", " "), "the name or id is empty: say which one; `list` shows those that there are"),
        (("machine", "list", "--token", ""), "--token: is empty; leave it out, or give it a value"),
        (("machine", "list", "--url="), "--url: is empty; leave it out, or give it a value"),
        (
            ("site", "show", "--url", "http://ana:s3cret@127.0.0.1:1"),
            "--url: has a login in it; the service takes a token",
        ),
    ],
)
def test_a_mistake_is_one_line_and_exit_status_2(fleet, service, words, said):
    ran = fleet(*words)
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith("fleet: ")
    assert said in ran.err
    assert len(ran.err.splitlines()) == 1
    assert "s3cret" not in ran.err
    assert service.requests == []


@pytest.mark.parametrize("words", [("site", "mode", "x" * 5000), ("machine", "import", "x" * 5000), ("x" * 5000,)])
def test_what_was_typed_is_not_repeated_at_length(fleet, words):
    ran = fleet("--json", *words)
    assert ran.status == 2
    assert max(map(len, ran.err.splitlines())) < 700
    assert len(ran.json["title"]) < 700 or words[0] == "machine"


def test_a_noun_without_its_verb_shows_the_verbs(fleet):
    ran = fleet("machine", "--json")
    assert (ran.status, ran.json) == (2, {"title": "a command is missing", "code": "usage"})
    assert "discover" in ran.err


@pytest.mark.parametrize("answer", [[], 5, "x", None, [[]], {"items": [5]}, {"items": 5}])
def test_an_answer_of_another_shape_is_no_service_of_ours(fleet, service, answer):
    service.on("GET", "/v1/machines", answer)
    ran = fleet("machine", "list", "--json")
    assert (ran.status, ran.json["code"]) == (70, "internal")
    assert "is not this service, or of another version" in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize("answer", [[], 5, None])
def test_a_single_record_of_another_shape_too(fleet, service, answer):
    service.on("GET", "/v1/site", answer)
    ran = fleet("site", "show")
    assert (ran.status, "its answer is not an object" in ran.err, "Traceback" in ran.err) == (70, True, False)


def test_nobody_there_is_said_without_numbers(fleet):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    ran = fleet("site", "show", "--url", f"http://127.0.0.1:{port}", "--token", "t")
    assert ran.status == 5
    assert f"http://127.0.0.1:{port} does not answer: Connection refused. Is the service up" in ran.err


@pytest.fixture
def dripping() -> Iterator[str]:
    """A service that promises a long answer and sends a byte of it now and then."""
    server = socket.create_server(("127.0.0.1", 0))
    over = threading.Event()

    def drip() -> None:
        while not over.is_set():
            connection, _ = server.accept()
            with connection, suppress(OSError):
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
                while not over.wait(0.02):
                    connection.sendall(b" ")

    thread = threading.Thread(target=drip)
    thread.start()
    yield f"http://127.0.0.1:{server.getsockname()[1]}"
    over.set()
    socket.create_connection(server.getsockname()).close()
    thread.join()
    server.close()


@pytest.mark.parametrize(("method", "status"), [("get", Exit.NOT_REACHED), ("post", Exit.NOT_SETTLED)])
def test_an_answer_that_never_ends_is_given_up(dripping, method, status):
    with Client(Profile(dripping, "t"), answer_s=0.1) as client, pytest.raises(CommandError) as raised:
        getattr(client, method)("/v1/site")
    assert raised.value.status is status
    assert "its answer has not ended in 0.1 s" in str(raised.value)


def command(service, tmp_path: Path, *words: str) -> subprocess.Popen[str]:
    env = {**os.environ, "FLEET_URL": service.url, "FLEET_TOKEN": "t", "FLEET_PROFILE": str(tmp_path / "none")}
    code = "import sys; from fleet.cli import main; sys.exit(main())"
    return subprocess.Popen(
        [sys.executable, "-c", code, *words], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_a_reader_that_has_seen_enough_is_no_failed_verdict(service, tmp_path):
    service.on("GET", "/v1/machines", {"items": [ROW] * 5000, "next": None})
    with command(service, tmp_path, "machine", "list") as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.readline()
        child.stdout.close()
        assert (child.wait(timeout=30), child.stderr.read()) == (0, "")


@pytest.mark.parametrize("words", [("machine", "check", "lab-02"), ("machine", "discover", "lab-02", "--json")])
def test_ctrl_c_while_a_host_is_looked_at_says_what_goes_on(service, tmp_path, words):
    service.on("POST", "/v1/inspections", ASKED, status=202)
    service.on("GET", "/v1/inspections/insp-1", ASKED)
    with command(service, tmp_path, *words) as child:
        while len(service.requests) < 2:
            time.sleep(0.02)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=30)
    assert child.returncode == 130
    assert f"insp-1 looks on and changes nothing; `fleet machine {words[1]} lab-02` waits for it again" in err
    assert ('"code": "interrupted"' in out) == ("--json" in words)


def test_ctrl_c_while_an_override_waits_says_that_nothing_is_given_away(service, tmp_path):
    ending = {"name": "lab-02", "open_validation": "val-1"}
    service.on("POST", "/v1/machines/lab-02/override", ending, status=202)
    service.on(
        "GET", "/v1/validations/val-1", {"id": "val-1", "machine": "lab-02", "phase": "teardown", "verdict": None}
    )
    words = ("machine", "override", "lab-02", "--instance", "vm-1", "--reason", "x", "--wait")
    with command(service, tmp_path, *words) as child:
        while len(service.requests) < 3:
            time.sleep(0.02)
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=30)
    assert (child.returncode, "val-1 is being ended, and lab-02 is not given away" in err) == (130, True)


def test_a_token_that_is_not_good_is_said_with_where_it_came_from(fleet, service):
    service.problem("GET", "/v1/site", 401, "unauthenticated", detail="this token is not known here")
    ran = fleet("site", "show")
    said = "fleet: this token is not known here (the token comes from --token, FLEET_TOKEN or the profile)\n"
    assert (ran.status, ran.err) == (4, said)


def test_a_short_restart_of_the_service_does_not_end_the_wait_for_a_host(fleet, service):
    service.on("POST", "/v1/inspections", ASKED, status=202)
    seen = {**ASKED, "outcome": "met", "result": {"rows": []}}
    service.on("GET", "/v1/inspections/insp-1", ASKED, *[DROPPED] * 4, seen)
    ran = fleet("machine", "check", "lab-02")
    assert (ran.status, "The service is away; insp-1 goes on" in ran.err) == (0, True)
