"""The workflows of every module of the package that has one: a new one is found without being named."""

import importlib
import pkgutil
from collections.abc import Callable
from inspect import signature
from pathlib import Path

from fleet import workflows
from fleet.engine.workflow import Workflow
from fleet.store.database import Database
from tests.unit.workflows.hosts import Hosts, world


def all_workflows(db: Database, folder: Path) -> list[Workflow]:
    modules = [importlib.import_module(f"fleet.workflows.{m.name}") for m in pkgutil.iter_modules(workflows.__path__)]
    outside = world(db, Hosts(), folder)
    makers = [module.workflow for module in modules if hasattr(module, "workflow")]
    return [make(outside, *others(make)) for make in makers]


def others(make: Callable[..., Workflow]) -> list[None]:
    """For what a workflow needs beside the world: its phases do not hang on it."""
    return [None for p in list(signature(make).parameters.values())[1:] if p.default is p.empty]
