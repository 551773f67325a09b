"""An exported validation on this machine: is everything in it that its manifest names, and is it what was stored?"""

import hashlib
import json
import tarfile
from pathlib import Path
from typing import Any

from fleet.cli.exits import CommandError, Exit

_CHUNK_BYTES = 1 << 20
_MANIFEST_LIMIT_BYTES = 16 << 20


def check(path: Path) -> tuple[dict[str, Any], list[str]]:
    """The manifest, and a sentence for each file that is missing or is another. Raises CommandError for what is no whole
    export."""
    hashes: dict[str, str] = {}
    manifest: Any = None
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                name = member.name.partition("/")[2]
                file = archive.extractfile(member)
                if file is None:
                    continue
                if name == "manifest.json":
                    manifest = json.loads(file.read(_MANIFEST_LIMIT_BYTES))
                    continue
                digest = hashlib.sha256()
                while chunk := file.read(_CHUNK_BYTES):
                    digest.update(chunk)
                hashes[name] = digest.hexdigest()
    except (tarfile.TarError, EOFError, OSError, ValueError) as exc:
        raise CommandError(f"the export was cut off or is damaged: {exc}", Exit.NOT_SETTLED) from exc
    if not isinstance(manifest, dict) or not isinstance(manifest.get("files"), list):
        raise CommandError("the export was cut off: it has no manifest", Exit.NOT_SETTLED)
    problems = []
    for entry in manifest["files"]:
        name = str(entry.get("path"))
        if entry.get("problem"):
            problems.append(f"{name}: {entry['problem']}")
        elif hashes.get(name) != entry.get("sha256"):
            problems.append(f"{name}: is not what the manifest says")
    return manifest, problems
