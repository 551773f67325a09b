"""What every command has: the options that may stand anywhere, the client, and the way to answer."""

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from fleet import profile
from fleet.cli.exits import CommandError, Exit
from fleet.cli.output import Column, complain, print_json, print_table
from fleet.core.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from fleet.cli.client import Client

Limit = Annotated[int | None, typer.Option("--limit", min=1, max=500, help="One page of at most this many rows.")]
Cursor = Annotated[str | None, typer.Option("--cursor", help="Go on where the last page ended (its `next`).")]
OfMachine = Annotated[str | None, typer.Option("--machine", metavar="NAME", help="Only this machine's.")]
Reason = Annotated[str, typer.Option("--reason", help="Why; goes to the record and to whoever asks.")]

_MANY = 50


@dataclass(frozen=True)
class Session:
    json: bool
    url: str | None
    token: str | None
    ca: str | None = None

    def connect(self) -> "AbstractContextManager[Client]":
        from fleet.cli.client import Client  # httpx takes 0.1 s to load: only for those who call

        try:
            return Client(profile.resolve(self.url, self.token, self.ca))
        except InvalidInput as exc:
            raise CommandError(str(exc), Exit.USAGE) from exc
        except NotFound as exc:
            raise CommandError(str(exc), Exit.NOT_REACHED) from exc

    def answer(self, document: Any, render: Callable[[], None]) -> None:
        """The document as it is with `--json`; what `render` prints otherwise."""
        print_json(document) if self.json else render()

    def answer_list(self, page: Mapping[str, Any], columns: Sequence[Column], nothing: str) -> None:
        self.answer(page, lambda: print_table(page["items"], columns, nothing))
        if not self.json and sys.stdout.isatty() and len(page["items"]) > _MANY:
            complain(f"{len(page['items'])} rows; --limit gives fewer at once.")
        if page.get("next") and not self.json:
            complain(f"There is more: --cursor {page['next']}")


def of(context: typer.Context) -> Session:
    found = context.find_object(Session)
    assert found is not None, "the root command puts it there"
    return found


def noun(summary: str) -> typer.Typer:
    """A sub-command with verbs; plain help text, since loading the formatted kind doubles the time of `--help`."""
    app = typer.Typer(help=summary, add_completion=False, rich_markup_mode=None, no_args_is_help=True)
    app.callback()(_no_options)
    return app


def _no_options() -> None:
    """A noun takes none; without this, one with a single verb would swallow the verb."""


def segment(text: str) -> str:
    """A name or id as one piece of a path, whatever is in it. Raises CommandError where nothing is."""
    if not text.strip():
        raise CommandError("the name or id is empty: say which one; `list` shows those that there are", Exit.USAGE)
    if not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text):
        raise CommandError(f"{text!a} is not UTF-8 text", Exit.USAGE)
    return quote(text, safe="") if text.strip(".") else quote(text, safe="").replace(".", "%2E")
