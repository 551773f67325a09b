"""plan.json: stages one after the other, the steps of a stage side by side."""

from __future__ import annotations

import json
import os
import re
from typing import List

from .state import MAX_STEPS
from .step import Step

NAME = re.compile(r"[a-z][a-z0-9_]{0,39}(\.[0-9]{1,3})?\Z")


class Unusable(Exception):
    """plan.json is not a plan; says where."""


def load(directory: str) -> List[List[Step]]:
    """The stages of the run in `directory`. Raises Unusable, OSError."""
    try:
        with open(os.path.join(directory, "plan.json"), "rb") as file:
            document = json.loads(file.read().decode())
        stages = [[_step(directory, spec) for spec in stage] for stage in document["stages"]]
    except (ValueError, TypeError, KeyError) as exc:
        raise Unusable("plan.json: {}: {}".format(type(exc).__name__, exc)) from None
    names = [step.name for stage in stages for step in stage]
    if len(names) > MAX_STEPS or len(set(names)) != len(names):
        raise Unusable("plan.json: {} steps, at most {} with different names".format(len(names), MAX_STEPS))
    return stages


def _step(directory: str, spec: dict) -> Step:  # type: ignore[type-arg]
    name, argv = spec["name"], spec["argv"]
    if not NAME.match(name):
        raise ValueError("name {!r}".format(name))
    if not argv or not all(isinstance(word, str) and "\0" not in word for word in argv):
        raise ValueError("argv of {}".format(name))
    return Step(directory, name, list(argv), float(spec["deadline_s"]), int(spec["output_limit_bytes"]))
