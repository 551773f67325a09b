"""Answers in sections: each begins with a line "NONCE KIND KEY STATUS", and the nonce is random and new, so that nothing that
a domain, a file or a tool says can look like one (`section` in scripts/prelude.sh writes them)."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Section:
    status: int
    body: str


Sections = Mapping[tuple[str, str], Section]


def split(text: str, nonce: str) -> Sections:
    """By kind and key. A header that is cut begins nothing."""
    sections: dict[tuple[str, str], Section] = {}
    for chunk in f"\n{text}".split(f"\n{nonce} ")[1:]:
        head, _, body = chunk.partition("\n")
        words = head.split(" ")
        if len(words) == 3 and words[2].isascii() and words[2].isdigit():
            sections[words[0], words[1]] = Section(int(words[2]), body)
    return sections
