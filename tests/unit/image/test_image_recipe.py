"""The recipe of the test image holds together: what it names is there, is pinned, and is what the checks call."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from image.__main__ import main
from image.profile import HERE, RecipeError, Versions, profile, sources, versions
from tests.needs import need
from tests.unit.validators.machine import subject
from validators import CHECKS

VENDOR = re.compile(r"nvidia-.*|cuda-.*|libcublas-.*|datacenter-gpu-manager-.*")
PROFILES = sorted(path.stem for path in (HERE / "profiles").glob("*.toml"))
SCRIPTS = sorted(
    [*HERE.glob("compile/*.sh"), *HERE.glob("guest/start.d/*"), HERE / "guest/init", HERE / "guest/initramfs"]
)
PROGRAMS = {  # what a check calls in the guest, and the package or source of the GPU image that brings it
    "gpu_burn": "gpu-burn",
    "all_reduce_perf": "nccl-tests",
    "ib_write_bw": "perftest",
    "fio": "fio",
}


def pin(package: str) -> str | None:
    for pattern, version in versions().pins.items():
        exact = pattern == package
        if exact or (pattern.startswith("/") and re.search(pattern.strip("/"), package)):
            return version
    return None


def everything(name: str) -> set[str]:
    return {*profile(name).packages, *profile(name).build_packages}


@pytest.mark.parametrize("name", PROFILES)
def test_every_script_and_source_that_a_profile_names_is_there(name: str) -> None:
    chosen = profile(name)
    assert set(chosen.compile) <= {path.stem for path in HERE.glob("compile/*.sh")}
    assert set(chosen.start) <= {path.name for path in HERE.glob("guest/start.d/*")}


def test_nothing_is_chosen_that_no_profile_uses() -> None:
    compiled = {name for one in PROFILES for name in profile(one).compile}
    assert {path.stem for path in HERE.glob("compile/*.sh")} == compiled
    assert set(versions().sources) == compiled - {"nvidia-modules"}
    started = {name for one in PROFILES for name in profile(one).start}
    assert {path.name for path in HERE.glob("guest/start.d/*")} == started
    wanted = {package for one in PROFILES for package in everything(one)}
    assert {p for p in versions().pins if not p.startswith("/")} <= wanted


def test_every_vendor_package_has_one_version() -> None:
    vendor = {package for package in everything("gpu") if VENDOR.fullmatch(package)}
    assert len(vendor) > 10
    assert [package for package in vendor if pin(package) is None] == []
    assert [package for package in everything("cpu") if VENDOR.fullmatch(package)] == []


def test_driver_fabric_manager_and_modules_are_of_one_version() -> None:
    pins = {pin(package) for package in ("nvidia-kernel-open-dkms", "nvidia-driver-cuda", "nvidia-fabricmanager")}
    assert pins == {f"{versions().driver}-1"}
    assert {pin("libcuda1"), pin("libnvidia-ml1")} == pins


def test_cuda_is_of_one_release() -> None:
    release = versions().cuda.home.rpartition("-")[2].replace(".", "-")
    cuda = [package for package in everything("gpu") if re.fullmatch(r"(cuda|libcublas)-.*", package)]
    assert cuda
    assert [package for package in cuda if not package.endswith(f"-{release}")] == []


def test_the_gpu_image_has_every_program_that_a_check_calls() -> None:
    """A new check with a tool of its own needs it in the image, and a line in PROGRAMS."""
    words = [check.argv(subject(scratch_disk="/dev/vdb")) for check in CHECKS.values() if check.argv is not None]
    measured = [(HERE.parent / f"validators/guest/measure/{w[1]}.py").read_text() for w in words if w[0] == "@measure"]
    called = {w[0] for w in words if w[0] != "@measure"}
    called |= {program for program in PROGRAMS for code in measured if f'"{program}"' in code}
    assert called == set(PROGRAMS)
    assert set(PROGRAMS.values()) <= {*profile("gpu").packages, *profile("gpu").compile}


def test_no_committed_file_names_a_host() -> None:
    for path in HERE.rglob("*"):
        if path.is_file() and path.suffix != ".pyc":
            assert "://" not in path.read_text(), path


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_every_script_is_one(script: Path) -> None:
    told = subprocess.run(["sh", "-n", script], capture_output=True, text=True, check=False)
    assert (told.returncode, told.stderr) == (0, "")
    need("shellcheck (Debian: tools/system-packages)", shutil.which("shellcheck"))
    told = subprocess.run(["shellcheck", "--shell=dash", script], capture_output=True, text=True, check=False)
    assert (told.returncode, told.stdout) == (0, "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("apt = 'deb'", "apt: "),
        ("mirror = 'x'", "mirror: Extra inputs are not permitted"),
        ("git = ", "Invalid value"),
    ],
)
def test_a_sources_file_that_cannot_be_used_is_told_with_its_key(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "sources.toml"
    path.write_text(text)
    with pytest.raises(RecipeError, match=re.escape(str(path))) as told:
        sources(path)
    assert said in str(told.value)


def test_the_example_of_a_sources_file_can_be_read() -> None:
    example = sources(HERE / "sources.example")
    assert all(line.startswith("deb ") for line in example.apt)
    assert example.git


def test_a_profile_that_is_none_is_told_with_those_that_are() -> None:
    with pytest.raises(RecipeError, match="there is no profile 'tpu': cpu, gpu"):
        profile("tpu")


def test_a_short_commit_is_no_pin() -> None:
    document = versions().model_dump()
    document["sources"]["nccl"]["commit"] = "80f6bda"
    with pytest.raises(ValueError, match="commit"):
        Versions.model_validate(document)


def test_apts_preferences_have_a_stanza_for_each_pin() -> None:
    stanzas = versions().preferences().strip().split("\n\n")
    assert len(stanzas) == len(versions().pins)
    assert "Package: /nvidia/\nPin: version 580.95.05-1\nPin-Priority: 1001" in stanzas


def test_what_needs_more_than_debian_asks_for_it_before_anything_is_fetched(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gpu"]) == 1
    assert capsys.readouterr().err == (
        "image: profile gpu is made from more than Debian: say where from with SOURCES=FILE; "
        "image/sources.example is a form to fill in\n"
    )
