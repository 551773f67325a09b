"""The answer of image.sh: what each file of the test image is on this host, or why that is not known."""

import re
from collections.abc import Mapping

from fleet.core.errors import HypervisorError
from fleet.hypervisor.base import ImageView
from fleet.remote.printable import printable

_DIGEST = re.compile(r"[0-9a-f]{64}")


def parse(answer: bytes, files: Mapping[str, str], machine: str) -> ImageView:
    """`files`: paths by part, in the order of the answer's lines. Raises HypervisorError."""
    lines = answer.decode("utf-8", "replace").splitlines()
    if len(lines) != len(files):
        raise HypervisorError(f"{machine}: image: {len(lines)} lines for {len(files)} files")
    digests: dict[str, str] = {}
    reading = False
    for (part, path), line in zip(files.items(), lines, strict=True):
        word, _, rest = line.partition(" ")
        if word == "failed":
            return ImageView(why=f"{path} on {machine} cannot be read: {printable(rest) or 'no reason given'}")
        if word == "known" and _DIGEST.fullmatch(rest):
            digests[part] = rest
        elif word == "reading":
            reading = True
        else:
            raise HypervisorError(f"{machine}: image: unreadable answer {printable(line, 120)!r}")
    return ImageView(reading=True) if reading else ImageView(digests)
