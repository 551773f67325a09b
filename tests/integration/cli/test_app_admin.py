"""The token in the profile of whoever starts the service, on both databases."""

from fleet.app import admin
from fleet.store import tokens


def test_the_first_start_makes_a_token_and_later_ones_keep_it(db):
    first = admin.token(db, None)
    assert admin.token(db, first) == first
    with db.read() as session:
        row, valid = tokens.find(session, first)
    assert row is not None
    assert (row.role, valid) == ("admin", True)


def test_a_lost_or_revoked_or_foreign_token_is_replaced(db):
    first = admin.token(db, None)
    second = admin.token(db, None)
    third = admin.token(db, "flt_of-another-service")
    assert len({first, second, third}) == 3
    with db.begin() as session:
        row, _ = tokens.find(session, first)
        assert row is not None
        tokens.revoke(session, row.id)
    assert admin.token(db, first) not in (first, second, third)


def test_a_token_of_a_lesser_role_is_no_admins(db):
    admin.token(db, None)
    with db.begin() as session:
        _, viewer = tokens.create(session, "v", "viewer")
    assert admin.token(db, viewer) != viewer
