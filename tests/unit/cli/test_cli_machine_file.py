"""Import files: every bad row is listed, and one is enough that nothing is imported."""

import json

import pytest

from fleet.cli import machine_file
from fleet.cli.exits import CommandError, Exit

CSV = """name,sku,address,port,user,host_key,rack,capacity,state,instances
gpu-1,h100-sxm5x8,10.0.0.1,22,root,ssh-ed25519 AAAA,r1,2,allocated,vm-1 vm-2
gpu-2,h100-sxm5x8,10.0.0.2,,root,ssh-ed25519 BBBB,,,,
"""
ROWS = [
    {
        "name": "gpu-1",
        "sku": "h100-sxm5x8",
        "rack": "r1",
        "capacity": 2,
        "state": "allocated",
        "instances": ["vm-1", "vm-2"],
        "ssh": {"address": "10.0.0.1", "port": 22, "user": "root", "host_key": "ssh-ed25519 AAAA"},
    },
    {
        "name": "gpu-2",
        "sku": "h100-sxm5x8",
        "ssh": {"address": "10.0.0.2", "user": "root", "host_key": "ssh-ed25519 BBBB"},
    },
]


def _file(tmp_path, name, text):
    file = tmp_path / name
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("m.csv", CSV),
        ("m.csv", "\ufeff" + CSV.replace("\n", "\r\n") + "\r\n"),
        ("m.json", json.dumps(ROWS)),
        ("m.yaml", json.dumps({"machines": ROWS})),
    ],
)
def test_the_same_machines_in_each_format(tmp_path, name, text):
    found = machine_file.read(_file(tmp_path, name, text))
    assert (found.rows, found.errors) == (ROWS, [])


def test_import_sends_all_rows_in_one_request(fleet, service, tmp_path):
    service.on("POST", "/v1/machines/import", {"imported": 2, "added": 2, "updated": 0}, status=201)
    assert fleet("machine", "import", str(_file(tmp_path, "m.csv", CSV))).status == 0
    assert [request.body for request in service.requests] == [{"machines": ROWS, "update": False}]


def test_one_bad_row_and_the_service_only_looks_at_the_others_so_that_all_are_listed(fleet, service, tmp_path):
    text = CSV + "gpu-3,h100,10.0.0.3\ngpu-1,h100,10.0.0.4,22,root,k,r,1,,\ngpu-5,h100,10.0.0.5,ssh,root,k,r,\u0661,,\n"
    errors = [{"row": 3, "name": "gpu-1", "field": "name", "detail": "is the name of an earlier row too"}]
    service.problem("POST", "/v1/machines/import", 422, "invalid-input", detail="1 bad row", errors=errors)
    ran = fleet("machine", "import", str(_file(tmp_path, "m.csv", text)), "--json")
    assert ran.status == 2
    assert service.requests[0].body["dry_run"] is True
    assert ran.err.splitlines()[1:] == [
        "  line 4: 3 cells under 10 columns",
        "  line 5: gpu-1: name: is the name of an earlier row too",
        "  line 6: port: 'ssh' is not a number",
        "  line 6: capacity: '\u0661' is not a number",
    ]
    assert ran.json["errors"][0] == {"where": "line 4", "detail": "3 cells under 10 columns"}
    assert ran.json["errors"][1] == {"where": "line 5", **errors[0]}


def test_a_bad_row_imports_nothing_where_the_service_finds_no_other(fleet, service, tmp_path):
    service.on("POST", "/v1/machines/import", {"imported": 0, "added": 0, "updated": 0})
    ran = fleet("machine", "import", str(_file(tmp_path, "m.csv", CSV + "gpu-3\n")))
    assert (ran.status, service.requests[0].body["dry_run"]) == (2, True)
    assert ran.err.endswith("nothing was imported:\n  line 4: 1 cells under 10 columns\n")


def test_bad_rows_are_said_without_a_service_too(fleet, service, tmp_path):
    ran = fleet("machine", "import", str(_file(tmp_path, "m.csv", CSV + "x\n")), "--url", "http://127.0.0.1:1")
    assert (ran.status, "line 4: 1 cells" in ran.err) == (2, True)


def test_a_dry_run_says_that_a_file_is_good(fleet, service, tmp_path):
    service.on("POST", "/v1/machines/import", {"imported": 0, "added": 0, "updated": 0})
    ran = fleet("machine", "import", "--dry-run", str(_file(tmp_path, "m.csv", CSV)))
    assert (ran.status, ran.out, service.requests[0].body["dry_run"]) == (0, "the file is good.\n", True)


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("m.json", '{"name": "a", "capacity": NaN}'),
        ("m.json", '{"name": "a \\ud800"}'),
        ("m.yaml", "{name: a, capacity: .inf}"),
        ("m.yaml", "{name: a, slots: !!set {b}}"),
        ("m.yaml", "{name: !!binary aGVsbG8=}"),
        ("m.yaml", "{name: !!timestamp 2026-01-01}"),
        ("m.yaml", "7"),
        ("m.yaml", '{name: "a\\0b"}'),
        ("m.json", '{"name": "a\\u0000"}'),
    ],
)
def test_a_value_that_no_request_can_carry_is_a_bad_row(tmp_path, name, row):
    found = machine_file.read(_file(tmp_path, name, f'[{{"name": "b"}}, {row}]'))
    assert found.rows == [{"name": "b"}]
    assert [error.partition(": ")[0] for error in found.errors] == ["machine 2"]


def test_a_time_in_yaml_is_sent_as_it_was_written(tmp_path):
    found = machine_file.read(_file(tmp_path, "m.yaml", "- {name: a, handed_over_at: 2026-01-01T00:00:00Z}\n"))
    assert found.rows == [{"name": "a", "handed_over_at": "2026-01-01T00:00:00Z"}]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("m.txt", "", "is .yaml, .json or .csv"),
        ("m.csv", "", "has no machines"),
        (
            "m.csv",
            "name,sku,colour\n",
            "line 1: there is no column 'colour'; the first line names the columns, with commas",
        ),
        (
            "m.csv",
            "name;sku\ngpu-1;x\n",
            "there is no column 'name;sku'; the first line names the columns, with commas",
        ),
        ("m.csv", "gpu-1,h100-sxm5x8\n", "there is no column 'gpu-1'; the first line names the columns"),
        ("m.csv", "name,name\n", "line 1: column 'name' twice"),
        ("m.csv", 'name,sku\n"a,b\n', "line 2"),
        ("m.yaml", "- name: a\n  sku: b\n  name: c\n", "line 3: key 'name' twice"),
        ("m.yaml", "a: &x [1]\nb: *x\n", "aliases are not allowed"),
        ("m.yaml", "- name: a\n bad\n", "line 2"),
        ("m.yaml", "machines: []\nmore: 1\n", "only key `machines`"),
        ("m.yaml", "5\n", "is not a list"),
        ("m.yaml", "!!python/object/apply:os.system [id]\n", "could not determine a constructor"),
        ("m.json", '[{"name": "a", "name": "b"}]', "key 'name' twice"),
        ("m.json", "[" * 100_000, "nested too deep"),
    ],
)
def test_a_file_that_is_wrong_is_named_with_the_place(tmp_path, name, text, said):
    file = _file(tmp_path, name, text)
    with pytest.raises(CommandError) as caught:
        machine_file.read(file)
    assert said in str(caught.value)
    assert str(file) in str(caught.value)
    assert caught.value.status is Exit.USAGE


def test_a_file_that_cannot_be_read_exits_2(fleet, tmp_path):
    assert fleet("machine", "import", str(tmp_path / "none.csv")).status == 2


def test_a_file_that_is_too_large_is_refused(tmp_path):
    with pytest.raises(CommandError, match="more than 4 MiB, the most that fit in one import: split it"):
        machine_file.read(_file(tmp_path, "m.csv", "name,sku\n" + "a,b\n" * (1 << 20)))


def test_what_other_programs_write_is_read(tmp_path):
    """A byte order mark, spaces in the first line, line ends of another system, quotes around everything."""
    text = '\ufeffname, sku, instances\r\n"gpu-1","h100-sxm5x8","a b"\r\n'
    assert machine_file.read(_file(tmp_path, "m.csv", text)).rows == [
        {"name": "gpu-1", "sku": "h100-sxm5x8", "instances": ["a", "b"]}
    ]


def test_a_person_is_shown_the_first_bad_rows_and_a_program_all(fleet, tmp_path):
    ran = fleet("machine", "import", str(_file(tmp_path, "m.csv", "name,sku\n" + "a\n" * 3000)), "--json")
    assert (ran.status, len(ran.json["errors"])) == (2, 3000)
    assert len(ran.err.splitlines()) == 42
    assert ran.err.splitlines()[-1] == "  and 2960 more: --json lists all"


SLOTS_CSV = """name,sku,rack,power_feed,slot,kind,pci,serial,guid,switch_port
gpu-1,h100-sxm5x8,r1,A,gpu0,gpu,0000:1b:00.0,165,,
gpu-1,h100-sxm5x8,r1,A,gpu1,gpu,0000:43:00.0,166,,
,,,,rail0,rail,0000:18:00.0,,b83f:d203:0001:0000,leaf-1/7
gpu-2,h100-sxm5x8,r2,B,,,,,,
"""


def test_a_line_a_device_adds_to_the_machine_above(tmp_path):
    found = machine_file.read(_file(tmp_path, "fleet.csv", SLOTS_CSV))
    assert found.errors == []
    assert found.rows == [
        {
            "name": "gpu-1",
            "sku": "h100-sxm5x8",
            "rack": "r1",
            "power_feed": "A",
            "slots": [
                {"slot": "gpu0", "kind": "gpu", "pci": "0000:1b:00.0", "serial": "165"},
                {"slot": "gpu1", "kind": "gpu", "pci": "0000:43:00.0", "serial": "166"},
                {
                    "slot": "rail0",
                    "kind": "rail",
                    "pci": "0000:18:00.0",
                    "guid": "b83f:d203:0001:0000",
                    "switch_port": "leaf-1/7",
                },
            ],
        },
        {"name": "gpu-2", "sku": "h100-sxm5x8", "rack": "r2", "power_feed": "B"},
    ]


def test_a_line_a_device_that_contradicts_the_machine_is_named(tmp_path):
    text = SLOTS_CSV.replace("gpu-1,h100-sxm5x8,r1,A,gpu1", "gpu-1,h100-sxm5x8,r9,A,gpu1")
    assert machine_file.read(_file(tmp_path, "fleet.csv", text)).errors == [
        "line 3: rack: 'r9' is not that of the line above"
    ]
