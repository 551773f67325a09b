"""Pieces of a build that need no Debian: pinned sources, the manifest, the recipe's digest, the cache."""

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fleet.workflows import test_image as reader
from image import cache, manifest, pinned
from image.profile import HERE, PinnedSource, Profile, RecipeError, Sources, profile, versions
from image.recipe import Image, Recipe, drop_host_keys
from tests.needs import need


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    return subprocess.run(
        ["git", "-C", str(folder), *who, *words], check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def upstream(tmp_path: Path) -> tuple[Sources, PinnedSource]:
    """A directory with one repository of two commits; the first is the pinned one."""
    folder = tmp_path / "git/maker/tool"
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet")
    (folder / "main.c").write_text("first")
    git(folder, "add", "main.c")
    git(folder, "commit", "--quiet", "-m", "first")
    commit = git(folder, "rev-parse", "HEAD")
    (folder / "main.c").write_text("second")
    git(folder, "commit", "--quiet", "-am", "second")
    return Sources(git=str(tmp_path / "git")), PinnedSource(repository="maker/tool", commit=commit)


def test_a_source_is_fetched_as_it_was_pinned(upstream: tuple[Sources, PinnedSource], tmp_path: Path) -> None:
    where, tool = upstream
    pinned.fetch("tool", tool, where, tmp_path / "got")
    assert (tmp_path / "got/main.c").read_text() == "first"


def test_a_commit_that_is_not_there_is_no_other_one(upstream: tuple[Sources, PinnedSource], tmp_path: Path) -> None:
    where, tool = upstream
    with pytest.raises(RecipeError, match="git ended with"):
        pinned.fetch("tool", tool.model_copy(update={"commit": "0" * 40}), where, tmp_path / "got")


def test_a_source_without_a_place_is_told_with_what_to_do(tmp_path: Path) -> None:
    tool = PinnedSource(repository="maker/tool", commit="0" * 40)
    with pytest.raises(RecipeError, match="say where that is by `git` in your SOURCES file"):
        pinned.fetch("tool", tool, Sources(), tmp_path / "got")


def test_compile_scripts_get_machine_code_for_every_gpu_chosen() -> None:
    seen = pinned.settings(versions(), "6.1.0-1-amd64")
    assert seen["KERNEL"] == "6.1.0-1-amd64"
    assert seen["GENCODE"].endswith("-gencode=arch=compute_100,code=sm_100 -gencode=arch=compute_100,code=compute_100")
    used = {name for script in HERE.glob("compile/*.sh") for name in seen if f"${name}" in script.read_text()}
    assert used == set(seen)


SMALL = Profile(
    name="small",
    configure=False,
    compressed_kernel=False,
    packages=("fio", "util-linux"),
    build_packages=(),
    compile=("nccl",),
    start=(),
    modules=(),
    left_out=(),
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """An image in which fio was unpacked and util-linux is known to dpkg."""
    need("dpkg-query", shutil.which("dpkg-query"))
    archives, dpkg = tmp_path / "var/cache/apt/archives", tmp_path / "var/lib/dpkg"
    for folder in (archives, dpkg, tmp_path / "etc"):
        folder.mkdir(parents=True)
    (archives / "fio_1%3a3.33-3+deb12u1_amd64.deb").touch()
    (dpkg / "status").write_text(
        "Package: util-linux\nStatus: install ok installed\nMaintainer: x <x@example.org>\nArchitecture: amd64\n"
        "Version: 2.38.1-5\nDescription: x\n"
    )
    return tmp_path


def test_the_manifest_is_what_the_service_reads(tree: Path) -> None:
    document = manifest.write(tree, SMALL, versions(), "0123456789abcdef", "6.1.0-1-amd64")
    read = reader.Versions.model_validate_json((tree / manifest.PLACE).read_bytes())
    assert read.model_dump() == document
    assert read.packages == {"fio": "1:3.33-3+deb12u1", "util-linux": "2.38.1-5", "linux": "6.1.0-1-amd64"}
    assert read.tools == {"nccl": versions().sources["nccl"].commit}


def test_an_image_without_a_package_of_its_profile_is_none(tree: Path) -> None:
    with pytest.raises(RecipeError, match="profile small names them: perftest"):
        manifest.write(tree, SMALL.model_copy(update={"packages": ("fio", "perftest")}), versions(), "r", "k")


def test_no_image_is_published_with_a_host_key(tmp_path: Path) -> None:
    folder = tmp_path / "etc/ssh"
    folder.mkdir(parents=True)
    for name in ("ssh_host_rsa_key", "ssh_host_ed25519_key", "ssh_host_ed25519_key.pub", "sshd_config"):
        (folder / name).touch()
    drop_host_keys(tmp_path)
    assert [path.name for path in folder.iterdir()] == ["sshd_config"]


def test_anything_that_goes_into_an_image_makes_another_recipe(tmp_path: Path) -> None:
    overlay = tmp_path / "overlay"
    overlay.mkdir()
    file = overlay / "motd"
    file.write_text("a")
    first = Recipe(profile("cpu"), versions(), overlay=overlay)
    seen = [first.digest, replace(first, profile=profile("gpu")).digest, replace(first, overlay=None).digest]
    seen.append(replace(first, sources=Sources(apt=("deb mirror bookworm main",))).digest)
    seen.append(replace(first, versions=versions().model_copy(update={"version": "2027.01"})).digest)
    file.write_text("b")
    seen.append(first.digest)
    file.chmod(0o755)
    seen.append(first.digest)
    assert len(set(seen)) == len(seen)
    assert Recipe(profile("cpu"), versions(), overlay=overlay).digest == first.digest


class Quick(Recipe):
    """Builds at once, and says so in its folder."""

    def build(self, work: Path, to: Path) -> Image:
        to.mkdir()
        (to / "root.ext4").write_text(str(len(list(to.parent.glob("building-*")))))
        return Image(to)


def test_an_image_is_built_once_and_the_oldest_go(tmp_path: Path) -> None:
    (tmp_path / "building-killed").mkdir()
    recipes = [
        Quick(SMALL, versions().model_copy(update={"version": f"v{number}"})) for number in range(cache.KEPT + 1)
    ]
    first = cache.built(recipes[0], tmp_path)
    assert first.root.read_text() == "1"  # what the killed build left is gone
    first.root.write_text("kept")
    assert cache.built(recipes[0], tmp_path).root.read_text() == "kept"
    for age, recipe in enumerate(recipes[1:]):
        folder = cache.built(recipe, tmp_path).folder
        os.utime(folder, (1000 + age, 1000 + age))
    cache.built(recipes[0], tmp_path)
    assert sorted(path.name.split("-")[3] for path in tmp_path.glob("fleet-test-*")) == ["v0", "v2", "v3"]
    assert not list(tmp_path.glob("building-*"))


def test_a_mistake_is_told_in_a_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "image", "tpu", "--output", str(tmp_path)]
    told = subprocess.run(command, capture_output=True, text=True, cwd=HERE.parent, check=False)
    assert told.returncode == 1
    assert told.stderr.startswith("image: ")
    assert told.stderr.count("\n") == 1
