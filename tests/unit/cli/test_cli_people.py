"""Approvals, attention, audit, site and tokens on the command line."""

import json

import pytest

APPROVAL = {
    "id": "apr-1",
    "action": "machine.override",
    "machine": "m",
    "target": "m",
    "request": {"instance": "vm-9", "reason": "customer insists"},
    "reason": "customer insists",
    "state": "waiting",
    "requested_by": "anna",
    "requested_at": "2026-11-30T08:00:00.000Z",
    "expires_at": "2026-12-01T08:00:00.000Z",
    "decided_by": None,
    "decided_at": None,
    "outcome": None,
}
MACHINE = {"id": "m", "name": "m", "state": "allocated", "open_validation": None}
OVERRIDE = ("machine", "override", "m", "--instance", "vm-9", "--reason", "r")


@pytest.mark.parametrize(
    ("words", "path"),
    [
        (("machine", "retire", "m", "--reason", "r"), "machines/m/retire"),
        (OVERRIDE, "machines/m/override"),
        (("resume", "--reason", "r"), "resume"),
    ],
)
def test_what_takes_two_people_exits_3_and_says_how_it_goes_on(fleet, service, words, path):
    service.on("POST", f"/v1/{path}", APPROVAL, status=202)
    ran = fleet(*words)
    assert ran.status == 3
    assert "fleet approval approve apr-1" in ran.err
    assert "anna" in ran.out
    assert "2026-11-30 08:00:00Z" in ran.out
    again = fleet(*words, "--json")
    assert (again.status, again.json) == (3, APPROVAL)


def test_the_second_person_is_told_that_it_is_done(fleet, service):
    service.on("POST", "/v1/approvals/apr-1/approve", {**APPROVAL, "state": "approved", "decided_by": "ben"})
    ran = fleet("approval", "approve", "apr-1", "--note", "agreed")
    assert (ran.status, ran.out) == (0, "Done: machine.override of m, asked for by anna.\n")
    assert service.requests[0].body == {"note": "agreed"}


def test_an_approval_that_still_waits_settles_nothing(fleet, service):
    waits = {**APPROVAL, "outcome": "a validation is ended first: approve it again when that is over"}
    service.on("POST", "/v1/approvals/apr-1/approve", waits, status=202)
    ran = fleet("approval", "approve", "apr-1")
    assert ran.status == 3
    assert "ended first" in ran.out


def test_a_no_takes_a_reason(fleet, service):
    service.on("POST", "/v1/approvals/apr-1/reject", {**APPROVAL, "state": "rejected"})
    assert fleet("approval", "reject", "apr-1").status == 2
    assert fleet("approval", "reject", "apr-1", "--reason", "no").out == "apr-1 is rejected; nothing was done.\n"
    assert service.requests[0].body == {"reason": "no"}


def test_approvals_are_listed_and_shown(fleet, service):
    service.on("GET", "/v1/approvals", {"items": [APPROVAL], "next": None})
    service.on("GET", "/v1/approvals/apr-1", APPROVAL)
    assert "customer insists" in fleet("approval", "list", "--state", "waiting", "--machine", "m").out
    assert service.requests[0].query == {"state": ["waiting"], "machine": ["m"], "limit": ["100"]}
    assert "instance      vm-9" in fleet("approval", "show", "apr-1").out


def test_a_claim_and_an_override_name_the_instance(fleet, service):
    service.on("POST", "/v1/machines/m/claim", MACHINE)
    service.on("POST", "/v1/machines/m/override", MACHINE)
    assert fleet("machine", "claim", "m", "--instance", "vm-9").out == "m is allocated to vm-9.\n"
    assert fleet(*OVERRIDE).out == "m is allocated to vm-9, which nothing has validated it for.\n"
    assert [r.body for r in service.requests] == [{"instance": "vm-9"}, {"instance": "vm-9", "reason": "r"}]


def test_an_override_that_ends_a_validation_first_settles_nothing_unless_it_waits(fleet, service):
    ending = {**MACHINE, "state": "validating", "open_validation": "val-1"}
    service.on("POST", "/v1/machines/m/override", ending, status=202)
    ran = fleet(*OVERRIDE)
    assert ran.status == 3
    assert "val-1 is being ended" in ran.out
    service.on("POST", "/v1/machines/m/override", ending, MACHINE)
    service.on(
        "GET", "/v1/validations/val-1", {"id": "val-1", "machine": "m", "verdict": "aborted", "phase": "settled"}
    )
    ran = fleet(*OVERRIDE, "--wait")
    assert (ran.status, ran.out) == (0, "m is allocated to vm-9, which nothing has validated it for.\n")


@pytest.mark.parametrize(
    ("said", "seconds"), [("90s", 90), ("45m", 2700), ("12h", 43200), ("30d", 2592000), ("2w", 1209600)]
)
def test_a_time_is_a_number_and_a_unit(fleet, service, said, seconds):
    service.on("POST", "/v1/tokens", {"id": "tok-1", "token": "flt_x"}, status=201)
    fleet("token", "create", "--name", "ci", "--role", "agent", "--machine", "m", "--expires", said)
    assert service.requests[0].body == {"name": "ci", "role": "agent", "machine": "m", "expires_in_s": seconds}


@pytest.mark.parametrize("said", ["30", "d", "0d", "-1d", "1.5h", "1y", "12h30m", "", "9999999999s"])
def test_what_is_no_time_is_refused_before_anything_is_sent(fleet, service, said):
    ran = fleet("machine", "hold", "m", "--reason", "r", "--expires", said)
    assert (ran.status, service.requests) == (2, [])
    assert "30d" in ran.err


def test_tokens_show_their_owner_and_last_use(fleet, service):
    row = {"id": "tok-1", "name": "ci", "role": "viewer", "created_by": "anna", "last_used_from": "192.0.2.7"}
    service.on("GET", "/v1/tokens", {"items": [{**row, "last_used_at": "2026-11-30T08:00:00.000Z"}], "next": None})
    out = fleet("token", "list").out
    assert all(word in out for word in ("anna", "192.0.2.7", "2026-11-30 08:00:00Z", "never"))


def test_attention_is_shown_with_its_next_step(fleet, service):
    row = {"id": "att-1", "kind": "stuck", "reason": "nothing gets on \x1b[31m", "next_step": "look", "state": "open"}
    service.on("GET", "/v1/attention/att-1", row)
    out = fleet("attention", "show", "att-1").out
    assert "next_step  look" in out
    assert "\x1b" not in out
    service.on("GET", "/v1/attention", {"items": [], "next": None})
    assert fleet("attention", "list", "--state", "resolved", "--kind", "stuck").out == "There is no such record.\n"
    assert service.requests[1].query == {"state": ["resolved"], "kind": ["stuck"], "limit": ["500"]}


def test_the_site_says_what_its_mode_means(fleet, service):
    pause = {"by": "anna", "reason": "power work", "since": "2026-11-30T08:00:00.000Z"}
    service.on("GET", "/v1/site", {"mode": "observe", "paused": pause, "two_person_rule": True})
    out = fleet("site", "show").out
    assert "observe: verdicts are recorded" in out
    assert "by anna since 2026-11-30 08:00:00Z: power work" in out
    assert "take two people" in out
    service.on("POST", "/v1/site/mode", {"mode": "enforce"})
    assert "files a ticket" in fleet("site", "mode", "enforce", "--reason", "trusted").out
    assert service.requests[1].body == {"mode": "enforce", "reason": "trusted"}
    assert fleet("site", "mode", "off").status == 2


ENTRIES = [{"id": n, "action": "machine.held", "detail": {"reason": "\x1b[31m"}} for n in (1, 2, 3)]


def test_the_trail_is_narrowed(fleet, service):
    service.on("GET", "/v1/audit", {"items": [], "next": None})
    since = "2026-11-30T08:00:00Z"
    fleet("audit", "list", "--actor", "anna", "--action", "machine.", "--refused", "--since", since, "--machine", "m")
    wanted = {"actor": ["anna"], "action": ["machine."], "allowed": ["false"], "since": [since], "machine": ["m"]}
    assert service.requests[0].query == {**wanted, "limit": ["100"]}


def test_an_export_is_json_lines_oldest_first_over_all_pages(fleet, service, tmp_path):
    pages = {"items": ENTRIES[:2], "next": "c1"}, {"items": ENTRIES[2:], "next": None}
    service.on("GET", "/v1/audit", *pages)
    ran = fleet("audit", "export", "--allowed")
    assert [json.loads(line) for line in ran.out.splitlines()] == ENTRIES
    assert ran.err == "3 entries.\n"
    assert service.requests[0].query == {"allowed": ["true"], "order": ["oldest"], "limit": ["500"]}
    assert service.requests[1].query["cursor"] == ["c1"]

    service.on("GET", "/v1/audit", *pages)
    file = tmp_path / "trail.jsonl"
    assert fleet("audit", "export", "-o", str(file)).status == 0
    assert [json.loads(line) for line in file.read_text().splitlines()] == ENTRIES
    assert file.stat().st_mode & 0o777 == 0o600
    assert fleet("audit", "export", "-o", str(file)).status == 2


def test_an_export_that_breaks_off_leaves_no_file(fleet, service, tmp_path):
    service.on("GET", "/v1/audit", {"items": ENTRIES, "next": "c1"}, {"items": "what"})
    assert fleet("audit", "export", "-o", str(tmp_path / "trail.jsonl")).status == 70
    service.problem("GET", "/v1/audit", 403, "forbidden", detail="no")
    assert fleet("audit", "export", "-o", str(tmp_path / "trail.jsonl")).status == 4
    assert list(tmp_path.iterdir()) == []
    assert fleet("audit", "export", "-o", str(tmp_path / "no" / "trail.jsonl")).status == 2
