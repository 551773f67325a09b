"""What a worker does with a step when the database did not say that it was saved."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy.orm import Session

from fleet.core.clock import Deadline
from fleet.core.errors import StoreBusy, StoreUnconfirmed
from fleet.engine.worker import Worker
from fleet.engine.workflow import Next, Phase, Work, Workflow
from fleet.store.database import Database
from tests.unit.engine.scene import add, give_up, row, unused


class Unheard(Database):
    """A database whose answer to one write, the next after `lose`, is lost: it was `committed`, or never seen. With `away`
    it answers no write at all."""

    def __init__(self, url: str, committed: bool = False) -> None:
        super().__init__(url)
        self.committed, self.losing, self.away = committed, False, False

    @contextmanager
    def begin(self) -> Iterator[Session]:
        if self.away:
            raise StoreBusy("the database does not answer")
        losing, self.losing = self.losing, False
        with super().begin() as session:
            yield session
            if losing and not self.committed:
                raise StoreUnconfirmed("the connection broke at the commit")
        if losing:
            raise StoreUnconfirmed("the connection broke at the commit")


@pytest.mark.parametrize("committed", [True, False], ids=["committed", "lost"])
def test_a_step_that_may_have_been_saved_is_free_at_once_as_the_row_says(database_url: str, committed: bool) -> None:
    db = Unheard(database_url, committed)
    run = add(db, "m1")

    def work(work: Work) -> Next:
        db.losing = True
        return Next("tidy", "done")

    flow = Workflow("job", {"work": Phase(work), "tidy": Phase(unused)}, abort=unused, give_up=give_up)
    assert Worker(db, [flow]).step()
    left = row(db, run)
    assert (left.phase, left.lease_until, left.attempts) == ("tidy" if committed else "work", 0.0, 0)
    db.close()


def test_what_could_not_be_put_back_is_free_as_soon_as_the_database_is_back(sqlite_url: str) -> None:
    db = Unheard(sqlite_url)
    run = add(db, "m1")
    tries: list[float] = []

    def work(work: Work) -> Next:
        tries.append(row(db, run).lease_until)
        db.away = len(tries) == 1
        return Next.done("done")

    flow = Workflow("job", {"work": Phase(work)}, abort=unused, give_up=give_up)
    worker = Worker(db, [flow], poll_s=0.01, lease_s=3600.0)
    worker.start()
    assert any(tries for _ in Deadline.after(20).poll(0.01))
    db.away = False
    assert any(row(db, run).ended_at for _ in Deadline.after(20).poll(0.01))
    worker.stop()
    assert len(tries) == 2
    db.close()
