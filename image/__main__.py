"""`python -m image PROFILE`: build an image, or find that it is there; print where, and the settings that use it."""

import argparse
import hashlib
import os
import sys
from pathlib import Path

from image import cache
from image.profile import RecipeError, profile, sources, versions
from image.recipe import CMDLINE, Image, Recipe


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="make image", description=__doc__)
    parser.add_argument("profile", help="cpu or gpu")
    parser.add_argument("--sources", type=Path, help="where parts come from (image/sources.example)")
    parser.add_argument("--overlay", type=Path, help="a directory of your own files, copied over the image's")
    parser.add_argument("--output", type=Path, default=Path("build/images"), help="images are kept there, by recipe")
    asked = parser.parse_args(words)
    try:
        chosen, given = profile(asked.profile), sources(asked.sources)
        if chosen.compile and not given.git:
            raise RecipeError(
                f"profile {chosen.name} is made from more than Debian: say where from with SOURCES=FILE; "
                "image/sources.example is a form to fill in"
            )
        if os.geteuid() != 0:
            raise RecipeError("an image is built as root: its files belong to root")
        if asked.overlay is not None and not asked.overlay.is_dir():
            raise RecipeError(f"--overlay: {asked.overlay} is not a directory")
        recipe = Recipe(chosen, versions(), given, asked.overlay)
        image = cache.built(recipe, asked.output.resolve())
    except RecipeError as exc:
        print(f"image: {exc}", file=sys.stderr)
        return 1
    print(described(image))
    return 0


def described(image: Image) -> str:
    """The files with their digests, and the settings for when they are on the hosts (docs/test-image.md)."""
    place = f"/var/lib/fleet/images/{image.folder.name}"
    lines = [f"{_sha256(path)}  {path}" for path in (image.root, image.kernel, image.initrd)]
    return "\n".join(
        [
            *lines,
            "",
            "hypervisor:",
            f"  image: {place}/{image.root.name}",
            "  image_format: raw",
            f"  image_digest: {_sha256(image.root)}",
            f"  kernel: {place}/{image.kernel.name}",
            f"  initrd: {place}/{image.initrd.name}",
            f"  cmdline: {CMDLINE}",
        ]
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
