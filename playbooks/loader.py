"""SKU and plan files by name, read strictly, and what a plan needs that a SKU does not give."""

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from playbooks.errors import PlaybookError, Problem, UnknownPlaybook
from playbooks.schema import Plan
from playbooks.strict_yaml import Document, Key, dotted, load
from playbooks.validation import validated
from validators import CHECKS
from validators.sku import Sku

SHIPPED = Path(__file__).parent
MAX_FILE_BYTES = 256 << 10
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
Value = TypeVar("Value", Sku, Plan)


@dataclass(frozen=True)
class Loaded(Generic[Value]):
    """`sha256` is of the file as it was read: it is stored with every verdict."""

    value: Value
    sha256: str
    path: Path


class Library:
    """Playbooks in directories that hold `skus/*.yaml` and `plans/*.yaml`; a name in an earlier directory hides the same
    name in a later one. Files are read at each call: an edit counts for the next validation."""

    def __init__(self, directories: Sequence[Path] = (SHIPPED,)) -> None:
        self._directories = tuple(directories)

    def sku(self, name: str) -> Loaded[Sku]:
        """Raises UnknownPlaybook, PlaybookError."""
        path = self._find("skus", name)
        document, sha256 = read(path)
        sku = validated(document, Sku)
        _named_alike(document, "sku", sku.sku, path)
        if unknown := sorted(set(sku.skip) - set(CHECKS)):
            raise PlaybookError(_no_check(document, ("skip", unknown[0]), unknown[0]))
        return Loaded(sku, sha256, path)

    def plan(self, name: str) -> Loaded[Plan]:
        """Raises UnknownPlaybook, PlaybookError."""
        path = self._find("plans", name)
        document, sha256 = read(path)
        plan = validated(document, Plan)
        _named_alike(document, "plan", plan.plan, path)
        problems = list(_unknown_checks(document, plan))
        if problems:
            raise PlaybookError(*problems)
        for check in plan.checks:
            options = document.content["checks"][check].get("with", {})
            validated(document, CHECKS[check].options, options, below=("checks", check, "with"))
        return Loaded(plan, sha256, path)

    def sku_names(self) -> list[str]:
        return self._names("skus")

    def plan_names(self) -> list[str]:
        return self._names("plans")

    def _find(self, kind: str, name: str) -> Path:
        if _NAME.fullmatch(name):
            for directory in self._directories:
                if (path := directory / kind / f"{name}.yaml").is_file():
                    return path
        known = ", ".join(self._names(kind)) or "none"
        raise UnknownPlaybook(Problem(kind, None, "", f"there is no {name[:64]!r}; known: {known}"))

    def _names(self, kind: str) -> list[str]:
        files = (path for directory in self._directories for path in (directory / kind).glob("*.yaml"))
        return sorted({path.stem for path in files if _NAME.fullmatch(path.stem)})


def read(path: Path) -> tuple[Document, str]:
    """One file and its SHA-256. Raises PlaybookError."""
    file = f"{path.parent.name}/{path.name}"
    try:
        with path.open("rb") as stream:
            raw = stream.read(MAX_FILE_BYTES + 1)
    except OSError as exc:
        raise PlaybookError(Problem(file, None, "", f"cannot be read: {exc.strerror}")) from exc
    if len(raw) > MAX_FILE_BYTES:
        raise PlaybookError(Problem(file, None, "", f"is larger than {MAX_FILE_BYTES // 1024} KiB"))
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as exc:
        line = raw.count(b"\n", 0, exc.start) + 1
        raise PlaybookError(Problem(file, line, "", "is not UTF-8")) from None
    return load(text, file), hashlib.sha256(raw).hexdigest()


def gaps(plan: Plan, sku: Sku) -> list[str]:
    """What keeps an enforced check of this plan from passing on any machine of this SKU, a sentence each."""
    needs = {
        "gpu_burn": ("limits.gpu_burn.min_gflops", sku.limits.gpu_burn),
        "nccl": ("limits.nccl.busbw_gbs", sku.limits.nccl),
        "ib_bandwidth": ("limits.ib_bandwidth.min_gbps", sku.limits.ib_bandwidth),
        "ib_links": ("rails", sku.rails),
    }
    enforced = (name for name in plan.names if plan.check(name).mode == "enforce" and name not in sku.skip)
    missing = ((name, *needs[name]) for name in enforced if name in needs)
    return [
        f"plan {plan.plan} enforces {name}, but SKU {sku.sku} has no `{key}` and does not skip it"
        for name, key, given in missing
        if given is None
    ]


def _named_alike(document: Document, key: str, name: str, path: Path) -> None:
    if name != path.stem:
        problem = Problem(
            document.file, document.line((key,)), key, f"is {name!r}, but the file is named {path.name!r}"
        )
        raise PlaybookError(problem)


def _unknown_checks(document: Document, plan: Plan) -> Iterable[Problem]:
    for index, stage in enumerate(plan.stages):
        for position, name in enumerate(stage):
            if name not in CHECKS:
                yield _no_check(document, ("stages", index, position), name)


def _no_check(document: Document, key: Key, name: str) -> Problem:
    return Problem(
        document.file, document.line(key), dotted(key), f"there is no check {name!r}; known: {', '.join(CHECKS)}"
    )
