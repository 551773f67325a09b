"""What is wrong with a playbook file, every problem with its file, line and key."""

from dataclasses import dataclass

from validators.tools.lines import printable


@dataclass(frozen=True)
class Problem:
    """`file` is the name as a person would type it (`skus/h100-sxm5x8.yaml`); `line` counts from 1."""

    file: str
    line: int | None
    key: str
    what: str

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        text = f"{place}: {self.key}: {self.what}" if self.key else f"{place}: {self.what}"
        return printable(text, 500)


class PlaybookError(Exception):
    """A SKU or plan file that cannot be used. `problems` lists all that was found, the message one a line."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


class UnknownPlaybook(PlaybookError):
    """No file of that name in any directory."""
