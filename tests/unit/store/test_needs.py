"""Nothing is skipped unseen where everything should be there."""

import pytest

from tests.needs import need


def test_what_is_there_is_used() -> None:
    need("a thing", found=True)


def test_what_is_missing_is_skipped_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="needs a thing"):
        need("a thing", found=None)


def test_what_is_missing_fails_under_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="needed here: a thing"):
        need("a thing", found=None)
