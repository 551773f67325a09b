"""SKU and plan files: every way of being wrong has an error with file, line, key and what to do."""

from pathlib import Path

import pytest

from playbooks.errors import PlaybookError, UnknownPlaybook
from playbooks.loader import MAX_FILE_BYTES, Library, gaps

SKU = """\
sku: x
gpus:
  count: 8
  names: [NVIDIA X]
  memory_mib: 40960
rails:
  count: 8
  rate_gbps: 200
limits:
  nccl:
    busbw_gbs:
      value: 220
      source: measured here
"""
PLAN = """\
plan: x
stages:
  - [gpu_inventory]
  - [gpu_burn]
checks:
  gpu_burn:
    mode: observe
    with:
      duration_s: 30
"""


def library(tmp_path: Path, kind: str, text: str | bytes, name: str = "x") -> Library:
    (tmp_path / kind).mkdir(parents=True, exist_ok=True)
    (tmp_path / kind / f"{name}.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    return Library([tmp_path])


def sku_error(tmp_path: Path, text: str | bytes) -> str:
    with pytest.raises(PlaybookError) as caught:
        library(tmp_path, "skus", text).sku("x")
    return str(caught.value)


def plan_error(tmp_path: Path, text: str | bytes) -> str:
    with pytest.raises(PlaybookError) as caught:
        library(tmp_path, "plans", text).plan("x")
    return str(caught.value)


def test_good_files_are_read_with_hash_and_path(tmp_path: Path) -> None:
    sku = library(tmp_path, "skus", SKU).sku("x")
    assert sku.value.limits.nccl is not None
    assert sku.value.limits.nccl.busbw_gbs.value == 220
    assert (sku.path, len(sku.sha256)) == (tmp_path / "skus" / "x.yaml", 64)
    plan = library(tmp_path, "plans", PLAN).plan("x")
    assert plan.value.check("gpu_burn").options == {"duration_s": 30}
    assert plan.value.names == ("gpu_inventory", "gpu_burn")


@pytest.mark.parametrize(
    ("was", "becomes", "said"),
    [
        ("busbw_gbs:\n", "busbw_mbs:\n", "skus/x.yaml:11: limits.nccl.busbw_mbs: unknown key; did you mean `busbw_gbs`?"),
        ("busbw_gbs:\n", "busbw_mbs:\n", "skus/x.yaml:10: limits.nccl.busbw_gbs: is missing"),
        ("    busbw_gbs:\n      value: 220\n      source: measured here\n", "    busbw_gbs: 220\n",
         "skus/x.yaml:11: limits.nccl.busbw_gbs: a limit needs `value` and `source`"),
        ("      source: measured here\n", "", "skus/x.yaml:11: limits.nccl.busbw_gbs: a limit needs `value` and `source`"),
        ("value: 220", "value: -1", "skus/x.yaml:12: limits.nccl.busbw_gbs.value: Input should be greater than 0"),
        ("value: 220", "value: .inf", "skus/x.yaml:12: limits.nccl.busbw_gbs.value: "),
        ("value: 220", "value: .nan", "skus/x.yaml:12: limits.nccl.busbw_gbs.value: "),
        ("value: 220", "value: yes", "skus/x.yaml:12: limits.nccl.busbw_gbs.value: Input should be a valid number"),
        ("value: 220", "value: '220'", "skus/x.yaml:12: limits.nccl.busbw_gbs.value: Input should be a valid number"),
        ("value: 220", "value: 2026-11-30", "skus/x.yaml:12: limits.nccl.busbw_gbs.value: YAML reads this as a date"),
        ("value: 220", "value: " + "9" * 5000, "skus/x.yaml:12: limits.nccl.busbw_gbs.value: is no number"),
        ("count: 8\n  names", "count: 8.5\n  names", "skus/x.yaml:3: gpus.count: Input should be a valid integer"),
        ("  memory_mib: 40960\n", "", "skus/x.yaml:2: gpus.memory_mib: is missing"),
        ("  memory_mib: 40960\n", "  memory_gb: 40\n", "skus/x.yaml:5: gpus.memory_gb: unknown key; did you mean `memory_mib`?"),
        ("[NVIDIA X]", "[]", "skus/x.yaml:4: gpus.names: "),
        ("[NVIDIA X]", "[1]", "skus/x.yaml:4: gpus.names[0]: Input should be a valid string"),
        ("rate_gbps: 200", "rate_gbps: 200\n  rate_gbps: 400", "skus/x.yaml:9: rails.rate_gbps: is given twice, first in line 8"),
        ("sku: x", "sku: y", "skus/x.yaml:1: sku: is 'y', but the file is named 'x.yaml'"),
        ("sku: x", "sku: ../x", "skus/x.yaml:1: sku: String should match pattern"),
        ("sku: x", "sku: x\nskip: {nvlink2: none here}", "skus/x.yaml:2: skip.nvlink2: there is no check 'nvlink2'"),
        ("sku: x", "sku: x\nskip: {nccl: ''}", "skus/x.yaml:2: skip.nccl: String should have at least 3 characters"),
        ("sku: x", "sku: x\nzzz: 1", "skus/x.yaml:2: zzz: unknown key; known here: description, gpus, limits, nvme"),
        ("sku: x", "sku: x\n1: 2", "skus/x.yaml:2: a key is a plain word"),
        ("sku: x", "sku: x\n<<: {a: 1}", "skus/x.yaml:2: a key is a plain word"),
        ("sku: x", "sku: &a x", "skus/x.yaml:1: anchors and aliases are not allowed"),
        ("sku: x", "sku: x\ndescription: *b", "skus/x.yaml:2: anchors and aliases are not allowed"),
        ("sku: x", "sku: !!python/object/apply:os.system [id]", "skus/x.yaml:1: tags such as"),
        ("sku: x", "sku: x\ndescription: " + "[" * 50 + "]" * 50, "skus/x.yaml:2: nested deeper than 12 levels"),
        ("sku: x", "sku: x\ndescription: 'open", "no YAML: "),
        ("sku: x", "sku: x\n---\nsku: x", "skus/x.yaml:2: no YAML: but found another document"),
        ("sku: x", "sku: x\ndescription: \x07", "no YAML: "),
        ("rails:\n", "rails: none\nrail:\n", "skus/x.yaml:6: rails: "),
    ],
)  # fmt: skip
def test_bad_sku_is_refused_with_its_place(tmp_path: Path, was: str, becomes: str, said: str) -> None:
    assert was in SKU
    assert said in sku_error(tmp_path, SKU.replace(was, becomes))


@pytest.mark.parametrize(
    ("was", "becomes", "said"),
    [
        ("[gpu_inventory]", "[gpu_inventori]", "plans/x.yaml:3: stages[0][0]: there is no check 'gpu_inventori'; known: "),
        ("duration_s: 30", "duration_min: 30", "plans/x.yaml:9: checks.gpu_burn.with.duration_min: unknown key; did you"),
        ("duration_s: 30", "duration_s: thirty", "plans/x.yaml:9: checks.gpu_burn.with.duration_s: Input should"),
        ("mode: observe", "mode: observed", "plans/x.yaml:7: checks.gpu_burn.mode: Input should be 'enforce' or 'observe'"),
        ("mode: observe", "options: {}", "plans/x.yaml:7: checks.gpu_burn.options: unknown key"),
        ("mode: observe", "deadline: 5", "plans/x.yaml:7: checks.gpu_burn.deadline: unknown key; did you mean `deadline_s`?"),
        ("mode: observe", "deadline_s: 0", "plans/x.yaml:7: checks.gpu_burn.deadline_s: Input should be greater than 0"),
        ("  gpu_burn:\n", "  nccl:\n", "plans/x.yaml:5: checks: nccl is configured but in no stage"),
        ("plan: x", "plan: x\nrunall: true", "plans/x.yaml:2: runall: unknown key; did you mean `run_all`?"),
        ("plan: x", "plan: x\nrun_all: 1", "plans/x.yaml:2: run_all: Input should be a valid boolean"),
        ("stages:\n  - [gpu_inventory]\n  - [gpu_burn]\n", "stages: []\n", "plans/x.yaml:2: stages: "),
        ("  - [gpu_inventory]\n", "  - []\n", "plans/x.yaml:3: stages[0]: "),
        ("  - [gpu_inventory]\n", "  - gpu_inventory\n", "plans/x.yaml:3: stages[0]: "),
        ("  - [gpu_inventory]\n", "  - [nccl, nccl]\n", "plans/x.yaml:3: stages[0]: nccl is named twice"),
    ],
)  # fmt: skip
def test_bad_plan_is_refused_with_its_place(tmp_path: Path, was: str, becomes: str, said: str) -> None:
    assert was in PLAN
    assert said in plan_error(tmp_path, PLAN.replace(was, becomes))


def test_every_problem_is_listed(tmp_path: Path) -> None:
    text = sku_error(tmp_path, SKU.replace("count: 8", "count: 0").replace("memory_mib", "memory_gib"))
    assert len(text.splitlines()) == 3
    assert all(line.startswith("skus/x.yaml:") for line in text.splitlines())


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"sku: \xff\xfe\n", "skus/x.yaml:1: is not UTF-8"),
        (b"", "skus/x.yaml:1: a file is a mapping"),
        (b"- 1\n", "skus/x.yaml:1: a file is a mapping"),
        (b"#" * (MAX_FILE_BYTES + 1), "skus/x.yaml: is larger than 256 KiB"),
        (b"a: " + b"[" * 100_000, "nested deeper than 12 levels"),
    ],
)
def test_file_that_is_no_playbook_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    assert said in sku_error(tmp_path, content)


def test_error_shows_no_control_characters(tmp_path: Path) -> None:
    text = sku_error(tmp_path, SKU + '"a\\x1b[31m\\u202e": 1\n')
    assert all(line.isprintable() for line in text.splitlines())


@pytest.mark.parametrize("name", ["nowhere", "../skus/x", "", "x\n", "x/../x", "\x1b[31m"])
def test_unknown_name_lists_the_known_ones(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnknownPlaybook, match="known: x") as caught:
        library(tmp_path, "skus", SKU).sku(name)
    assert str(caught.value).isprintable()


def test_first_directory_hides_the_same_name_in_a_later_one(tmp_path: Path) -> None:
    library(tmp_path / "site", "skus", SKU.replace("value: 220", "value: 230"))
    library(tmp_path / "shipped", "skus", SKU)
    library(tmp_path / "shipped", "skus", SKU.replace("sku: x", "sku: z"), name="z")
    both = Library([tmp_path / "site", tmp_path / "shipped"])
    nccl = both.sku("x").value.limits.nccl
    assert nccl is not None
    assert nccl.busbw_gbs.value == 230
    assert both.sku_names() == ["x", "z"]
    assert both.plan_names() == []


def test_gaps_name_what_an_enforced_check_misses(tmp_path: Path) -> None:
    stages = "  - [gpu_burn, nccl, ib_links, ib_bandwidth]\n"
    plan = library(tmp_path, "plans", f"plan: x\nstages:\n{stages}").plan("x").value
    bare = SKU.replace("rails:\n  count: 8\n  rate_gbps: 200\n", "")
    assert gaps(plan, library(tmp_path, "skus", bare).sku("x").value) == [
        "plan x enforces gpu_burn, but SKU x has no `limits.gpu_burn.min_gflops` and does not skip it",
        "plan x enforces ib_links, but SKU x has no `rails` and does not skip it",
        "plan x enforces ib_bandwidth, but SKU x has no `limits.ib_bandwidth.min_gbps` and does not skip it",
    ]
    skipping = bare + "skip: {gpu_burn: not here, ib_links: no cards, ib_bandwidth: no cards}\n"
    assert gaps(plan, library(tmp_path, "skus", skipping).sku("x").value) == []


def test_observed_check_needs_no_limit(tmp_path: Path) -> None:
    plan = library(tmp_path, "plans", PLAN).plan("x").value
    assert gaps(plan, library(tmp_path, "skus", SKU).sku("x").value) == []
