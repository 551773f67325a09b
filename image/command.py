"""Running the programs that a build is made of."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

from image.profile import RecipeError


def run(*command: str | Path, cwd: Path | None = None, environment: Mapping[str, str] | None = None) -> str:
    """What it printed. Raises RecipeError with the end of what it said on stderr."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=cwd, env=environment)
    except OSError as exc:
        raise RecipeError(f"{words[0]}: {exc.strerror} (tools/system-packages lists what a build needs)") from exc
    if done.returncode != 0:
        raise RecipeError(f"{words[0]} ended with {done.returncode}: {(done.stderr or done.stdout).strip()[-2000:]}")
    return done.stdout
