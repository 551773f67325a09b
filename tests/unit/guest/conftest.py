from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.guest.world import Guest


@pytest.fixture
def guest(tmp_path: Path) -> Iterator[Guest]:
    guest = Guest(tmp_path)
    yield guest
    guest.end()
