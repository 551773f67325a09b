import os

import pytest

from fleet.app import lock
from fleet.core.errors import Refused


def test_one_alone_and_the_refusal_says_who_has_it(tmp_path):
    database = tmp_path / "fleet.sqlite"
    with lock.held(database, alone=True):
        for alone in (True, False):
            with pytest.raises(Refused, match=rf"fleet.sqlite is in use by `fleet up`, process {os.getpid()}"):
                lock.held(database, alone=alone).__enter__()
    with lock.held(database, alone=True):
        pass


def test_several_share_it_and_keep_the_one_out(tmp_path):
    database = tmp_path / "fleet.sqlite"
    with (
        lock.held(database, alone=False),
        lock.held(database, alone=False),
        pytest.raises(Refused, match="`fleet serve or worker`"),
    ):
        lock.held(database, alone=True).__enter__()
