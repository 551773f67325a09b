from collections.abc import Iterator

import pytest

from fleet.remote.ssh import SshPool
from tests.contract.remote import sshd
from tests.contract.remote.sshd import Sshd
from tests.needs import need


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    need("sshd (Debian: apt-get install openssh-server)", sshd.PROGRAM)
    with sshd.running(tmp_path_factory.mktemp("sshd")) as running:
        yield running


@pytest.fixture
def pool() -> Iterator[SshPool]:
    made = SshPool()
    yield made
    made.close()
