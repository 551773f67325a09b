"""What scripts and people get: JSON documents, tables, exit statuses."""

import json
import os
import subprocess
import sys

import pytest

LAB = {
    "id": "lab-01",
    "name": "lab-01",
    "sku": "sim-a100x8",
    "state": "allocated",
    "since": "2026-03-01T10:00:00.123Z",
    "why": "tenant-1 was placed",
    "instances": [{"id": "tenant-1", "kind": "tenant", "since": "2026-03-01T10:00:00Z"}],
    "hold": None,
}


@pytest.mark.parametrize(
    "words", [("--json", "machine", "list"), ("machine", "--json", "list"), ("machine", "list", "--json")]
)
def test_json_may_stand_anywhere_and_stdout_is_one_document(fleet, service, words):
    service.on("GET", "/v1/machines", {"items": [LAB], "next": None})
    ran = fleet(*words)
    assert (ran.status, ran.json, ran.err) == (0, {"items": [LAB], "next": None}, "")


def test_a_list_is_read_to_its_end(fleet, service):
    service.on(
        "GET", "/v1/machines", {"items": [LAB], "next": "c1"}, {"items": [{**LAB, "id": "lab-02"}], "next": None}
    )
    ran = fleet("machine", "list", "--json")
    assert [row["id"] for row in ran.json["items"]] == ["lab-01", "lab-02"]
    assert service.requests[1].query["cursor"] == ["c1"]


def test_a_limit_gives_one_page_and_says_how_to_go_on(fleet, service):
    service.on("GET", "/v1/machines", {"items": [LAB], "next": "c1"})
    ran = fleet("machine", "list", "--limit", "1")
    assert service.requests[0].query == {"limit": ["1"]}
    assert "--cursor c1" in ran.err


def test_a_table_in_a_pipe_is_not_cut(fleet, service):
    service.on("GET", "/v1/machines", {"items": [{**LAB, "why": "w" * 500}], "next": None})
    ran = fleet("machine", "list")
    header, row = ran.out.splitlines()
    assert header.split() == ["NAME", "STATE", "SINCE", "SKU", "INSTANCES", "HOLD", "WHY"]
    assert "w" * 500 in row
    assert "tenant-1 (tenant)" in row


def test_filters_become_the_query(fleet, service):
    service.on("GET", "/v1/tickets", {"items": [], "next": None})
    ran = fleet("ticket", "list", "--machine", "lab-02", "--state", "open")
    assert service.requests[0].query == {"machine": ["lab-02"], "state": ["open"], "limit": ["500"]}
    assert ran.out == "No tickets.\n"


def test_control_characters_reach_no_terminal(fleet, service):
    harm = "\x1b]0;owned\x07 \x9b31m \u202egnp \x7f \r"
    service.on("GET", "/v1/machines", {"items": [{**LAB, "why": harm}], "next": None})
    for words in (("machine", "list"), ("machine", "list", "--json")):
        shown = fleet(*words).out
        assert not [c for c in shown if c != "\n" and not c.isprintable()]
    assert "\\x1b]0;owned\\x07" in fleet("machine", "list").out


def test_rich_markup_in_answers_is_text(fleet, service):
    service.on("GET", "/v1/machines", {"items": [{**LAB, "why": "[red]not markup[/red] :smile:"}], "next": None})
    assert "[red]not markup[/red] :smile:" in fleet("machine", "list").out


def test_control_characters_in_errors_are_escaped(fleet, service):
    service.problem("GET", "/v1/machines/lab-01", 404, "not-found", detail="no \x1b[2J machine")
    assert "no \\x1b[2J machine" in fleet("machine", "show", "lab-01").err


@pytest.mark.parametrize(
    ("http", "code", "status"),
    [
        (422, "invalid-input", 2),
        (413, "too-large", 2),
        (404, "not-found", 4),
        (409, "refused", 4),
        (409, "illegal-move", 4),
        (409, "conflict", 4),
        (401, "unauthenticated", 4),
        (403, "forbidden", 4),
        (503, "store-busy", 5),
        (500, "internal", 70),
        (503, "store", 5),
    ],
)
def test_every_problem_has_its_exit_status(fleet, service, http, code, status):
    service.problem("POST", "/v1/machines/lab-01/unhold", http, code, detail="held by ana since 10:00: fans")
    ran = fleet("machine", "unhold", "lab-01", "--json")
    assert (ran.status, ran.json["code"]) == (status, code)
    assert "held by ana since 10:00: fans" in ran.err


def test_a_problem_names_its_field_and_every_bad_row(fleet, service):
    errors = [{"row": 2, "name": "b", "field": "sku", "detail": "unknown"}, {"row": 5, "detail": "twice"}]
    service.problem("POST", "/v1/machines", 422, "invalid-input", detail="2 bad rows", field="machines", errors=errors)
    err = fleet("machine", "add", "b", "--sku", "x").err
    assert err == "fleet: machines: 2 bad rows\n  row 2: b: sku: unknown\n  row 5: twice\n"


def test_a_row_of_an_error_stays_a_line(fleet, service):
    errors = [{"row": 1, "name": "a\nfleet: 1 machines were added", "field": "name", "detail": "no"}]
    service.problem("POST", "/v1/machines", 422, "invalid-input", detail="1 bad row", errors=errors)
    assert fleet("machine", "add", "b", "--sku", "x").err.splitlines()[1] == (
        "  row 1: a\\nfleet: 1 machines were added: name: no"
    )


def test_a_single_error_is_said_once(fleet, service):
    errors = [{"field": "machine", "detail": "is no name"}]
    service.problem(
        "GET", "/v1/machines/X", 422, "invalid-input", detail="machine: is no name", field="machine", errors=errors
    )
    assert fleet("machine", "show", "X").err == "fleet: machine: is no name\n"


def test_usage_errors_exit_2(fleet):
    for words in (("machine", "lst"), ("machien", "list"), ("event", "vacated", "lab-01", "--instance", "i"), ()):
        assert fleet(*words).status == 2
    assert "Did you mean 'machine'" in fleet("machien", "list").err


def test_nobody_listening_exits_5(fleet):
    ran = fleet("machine", "list", "--url", "http://127.0.0.1:1")
    assert ran.status == 5
    assert "fleet up" in ran.err


def test_an_address_that_is_none_exits_2(fleet):
    assert fleet("machine", "list", "--url", "lab").status == 2


def test_something_else_behind_the_address_exits_70(fleet, service):
    service.on("GET", "/v1/machines", b"<html>hello</html>")
    assert fleet("machine", "list").status == 70


def test_a_proxy_without_its_service_exits_5(fleet, service):
    service.on("GET", "/v1/machines", b"<html>Bad Gateway</html>", status=502)
    ran = fleet("machine", "list")
    assert ran.status == 5
    assert "answered 502" in ran.err


@pytest.mark.parametrize(
    "words",
    [
        ("machine", "show", "lab-\udcff"),
        ("machine", "hold", "lab-01", "--reason", "fans \udcff"),
        ("machine", "list", "--machine", "\udcff"),
        ("machine", "list", "--token", "flt_\udcff"),
        ("machine", "list", "--url", "http://127.0.0.1:8470/\x01"),
    ],
)
def test_arguments_that_are_no_text_exit_2_and_send_nothing(fleet, service, words):
    ran = fleet(*words)
    assert (ran.status, service.requests) == (2, [])
    assert "fault of the program" not in ran.err


def test_a_terminal_without_the_letters_gets_its_answer(service):
    service.on("GET", "/v1/machines", {"items": [{**LAB, "why": "schön"}], "next": None})
    env = {**os.environ, "PYTHONIOENCODING": "ascii", "FLEET_URL": service.url, "FLEET_TOKEN": "flt_x"}
    words = (sys.executable, "-c", "from fleet.cli import main; main()", "machine", "list")
    ran = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, "sch\\xf6n" in ran.stdout) == (0, True), ran.stderr


def test_names_stay_one_piece_of_the_path(fleet, service):
    fleet("machine", "show", "../tokens?x=1#f")
    fleet("machine", "show", "..")
    assert [request.path for request in service.requests] == [
        "/v1/machines/..%2Ftokens%3Fx%3D1%23f",
        "/v1/machines/%2E%2E",
    ]


def test_logs_are_listed_or_printed(fleet, service):
    rows = [
        {"id": "1", "name": "nccl", "stream": stream, "bytes": 5, "sha256": "ab", "ended": "exited"}
        for stream in ("stdout", "stderr")
    ]
    service.on("GET", "/v1/validations/val-1/logs", {"items": rows, "next": None})
    service.on("GET", "/v1/validations/val-1/logs/nccl/stdout", b"line 1\n\x1b[31mred\n")
    service.on("GET", "/v1/validations/val-1/logs/nccl/stderr", b"")
    assert "nccl" in fleet("validation", "logs", "val-1").out
    assert fleet("validation", "logs", "val-1", "nccl").out == "line 1\n\\x1b[31mred\n"
    assert fleet("validation", "logs", "val-1", "nccl", "--json").json["items"][0]["text"] == "line 1\n\x1b[31mred\n"
    assert fleet("validation", "logs", "val-1", "fio").status == 4


def test_help_of_every_command_is_there(fleet):
    from fleet.cli.root import COMMANDS

    for name in COMMANDS:
        ran = fleet(name, "--help")
        assert (ran.status, "Usage: fleet " + name in ran.out) == (0, True), name


def test_json_escapes_are_still_json(fleet, service):
    service.on("GET", "/v1/machines", {"items": [{**LAB, "why": "\x7f\x1bé"}], "next": None})
    assert json.loads(fleet("machine", "list", "--json").out)["items"][0]["why"] == "\x7f\x1bé"
