import shutil
from pathlib import Path

import pytest

from fleet.core.model import TestVm
from fleet.hypervisor.test_vm import make_test_vm
from tests.contract.hypervisor.host import Host, machine
from tests.needs import need


@pytest.fixture
def host(tmp_path: Path) -> Host:
    need("flock and setsid (Debian: apt-get install util-linux)", shutil.which("flock") and shutil.which("setsid"))
    return Host(tmp_path)


@pytest.fixture
def vm() -> TestVm:
    return make_test_vm("val-1", machine("0000:1b:00.0"))
