"""Images that were built before, kept by their recipe."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from image.recipe import Image, Recipe

KEPT = 3


def built(recipe: Recipe, cache: Path) -> Image:
    """The image of this recipe, built if it is not in the cache; whoever wants it meanwhile waits. Raises RecipeError."""
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / f"fleet-test-{recipe.profile.name}-{recipe.versions.version}-{recipe.digest}"
    with _locked(cache / "lock"):
        if not folder.is_dir():
            for left in cache.glob("building-*"):  # by a build that was killed
                shutil.rmtree(left)
            work = Path(tempfile.mkdtemp(dir=cache, prefix="building-"))
            try:
                recipe.build(work, folder)
            finally:
                shutil.rmtree(work)
        os.utime(folder)
        _drop_oldest(cache, recipe.profile.name)
    return Image(folder)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _drop_oldest(cache: Path, profile: str) -> None:
    images = sorted(cache.glob(f"fleet-test-{profile}-*"), key=lambda p: p.stat().st_mtime)
    for folder in images[:-KEPT]:
        shutil.rmtree(folder)
