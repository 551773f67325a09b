"""Words from outside, made fit to be shown: one line, no control characters, bounded."""

import re

_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]+")


def printable(words: str | bytes, limit: int = 300) -> str:
    """`words` on one line. Control and direction-changing characters become one space (they could rewrite a terminal
    or forge a line of a log); what is longer than `limit` characters is cut, and says so."""
    text = words[: limit * 8].decode("utf-8", "replace") if isinstance(words, bytes) else words[: limit * 8]
    line = " ".join(_UNPRINTABLE.sub(" ", text).split())
    return line if len(line) <= limit else line[: limit - 4] + " ..."
