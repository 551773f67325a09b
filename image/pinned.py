"""Tools that are built from source: fetched by commit, built in the image with what it has installed."""

import os
import shutil
from pathlib import Path

from image.command import run
from image.profile import HERE, PinnedSource, Profile, RecipeError, Sources, Versions

PLACE = "fleet-build"  # in the image, while it is built
_SHELL = (
    "sh",
    "-c",
    'set -e; mount -t proc proc "$0/proc"; mount --bind /dev "$0/dev"; exec chroot "$0" sh -eux "$1"',
)


def fetch(name: str, pinned: PinnedSource, sources: Sources, to: Path) -> None:
    """The content of the commit, and of no other: git computes its id anew from what came. Raises RecipeError."""
    if not sources.git:
        raise RecipeError(f"{name} is built from {pinned.repository}: say where that is by `git` in your SOURCES file")
    to.mkdir(parents=True)
    clean = {**os.environ, "GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0"}
    run("git", "init", "--quiet", to, environment=clean)
    where = f"{sources.git.rstrip('/')}/{pinned.repository}"
    run("git", "-C", to, "fetch", "--quiet", "--depth=1", where, pinned.commit, environment=clean)
    run("git", "-C", to, "-c", "advice.detachedHead=false", "checkout", "--quiet", "FETCH_HEAD", environment=clean)
    if (got := run("git", "-C", to, "rev-parse", "HEAD").strip()) != pinned.commit:
        raise RecipeError(f"{where} gave the commit {got}, not {pinned.commit}")
    run("git", "-C", to, "fsck", "--strict", "--no-progress", environment=clean)


def build(tree: Path, profile: Profile, versions: Versions, sources: Sources, kernel: str) -> None:
    """Run the profile's compile scripts in the image, then take away what only they needed. Raises RecipeError."""
    place = tree / PLACE
    try:
        for name in profile.compile:
            if (pinned := versions.sources.get(name)) is not None:
                fetch(name, pinned, sources, place / name)
            place.mkdir(exist_ok=True)
            shutil.copy(HERE / "compile" / f"{name}.sh", place / f"{name}.sh")
            _in(tree, f"/{PLACE}/{name}.sh", SOURCE=f"/{PLACE}/{name}", **settings(versions, kernel))
    finally:
        shutil.rmtree(place, ignore_errors=True)
    if profile.build_packages:
        run("chroot", tree, "apt-get", "purge", "--yes", "--quiet", "--auto-remove", *profile.build_packages)


def settings(versions: Versions, kernel: str) -> dict[str, str]:
    """What the compile scripts find in their environment."""
    cuda = versions.cuda
    newest = cuda.architectures[-1]
    code = [f"-gencode=arch=compute_{a},code=sm_{a}" for a in cuda.architectures]
    return {
        "KERNEL": kernel,
        "DRIVER": versions.driver,
        "CUDA_HOME": cuda.home,
        "GENCODE": " ".join([*code, f"-gencode=arch=compute_{newest},code=compute_{newest}"]),
        "ARCHITECTURES": ";".join(cuda.architectures),
        "OLDEST": cuda.architectures[0],
    }


def _in(tree: Path, script: str, **environment: str) -> None:
    """In a mount namespace of its own: what is mounted for the script goes with it."""
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin"
    run("unshare", "--mount", *_SHELL, tree, script, environment={"PATH": path, "LC_ALL": "C.UTF-8", **environment})
