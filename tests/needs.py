"""Parts of the system that a test needs and a machine may lack."""

import os

import pytest


def need(what: str, found: object) -> None:
    """Skip the test with the reason when `found` is falsy; under CI (CI=true) that is a failure: nothing is skipped
    there unseen. `what` says what is missing and how to get it."""
    if found:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(f"needed here: {what}", pytrace=False)
    pytest.skip(f"needs {what}")
