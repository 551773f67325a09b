"""/etc/fleet-image.json: what the image says of itself. The service reads it from the booted VM (fleet/workflows/test_image.py)
and keeps it on the validation's record."""

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from image.command import run
from image.profile import Profile, RecipeError, Versions

PLACE = "etc/fleet-image.json"
_ARCHIVE = re.compile(r"(?P<name>[^_]+)_(?P<version>[^_]+)_[^_]+\.deb")


def write(tree: Path, profile: Profile, versions: Versions, recipe: str, kernel: str) -> dict[str, Any]:
    """Versions of the packages that the profile names, not of all that they need: those follow from them. Raises RecipeError
    for one that is not there."""
    there = installed(tree)
    if missing := sorted(set(profile.packages) - set(there)):
        raise RecipeError(f"not in the image, though the profile {profile.name} names them: {', '.join(missing)}")
    document = {
        "format": 1,
        "profile": profile.name,
        "version": versions.version,
        "recipe": recipe,
        "packages": {name: there[name] for name in sorted(profile.packages)} | {"linux": kernel},
        "tools": {name: versions.sources[name].commit for name in profile.compile if name in versions.sources},
    }
    (tree / PLACE).write_text(json.dumps(document, indent=1) + "\n")
    return document


def installed(tree: Path) -> dict[str, str]:
    """Version by package: of what dpkg has configured, and of what was only unpacked, which it does not know of."""
    found = {}
    for archive in (tree / "var/cache/apt/archives").glob("*.deb"):
        if match := _ARCHIVE.fullmatch(archive.name):
            found[match["name"]] = unquote(match["version"])
    shown = run("dpkg-query", f"--admindir={tree / 'var/lib/dpkg'}", "--show", "--showformat=${Package}\t${Version}\n")
    return found | dict(line.split("\t") for line in shown.splitlines())
