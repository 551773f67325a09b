"""The test VM's image: the recipe's CPU profile (`image/`), with stand-ins for the hardware that no test machine has."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from image import cache
from image.profile import profile, versions
from image.recipe import Image, Recipe

HERE = Path(__file__).parent
GUEST = HERE / "guest"  # our own files in the image
STANDIN = HERE.parent / "data" / "nvml" / "standin.c"
LIBRARY = "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "fleet-e2e"


def image() -> Image:
    """For the present content of the recipe and of our files; built (half a minute, root, a package mirror) if not cached."""
    with tempfile.TemporaryDirectory() as folder:
        overlay = Path(folder) / "overlay"
        shutil.copytree(GUEST, overlay)
        library = overlay / LIBRARY
        library.parent.mkdir(parents=True)
        compiler = ("gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-Wl,-soname,libnvidia-ml.so.1")
        subprocess.run([*compiler, "-o", str(library), str(STANDIN)], check=True, capture_output=True)
        return cache.built(Recipe(profile("cpu"), versions(), overlay=overlay), cache_folder())
