"""`fleet token`: who may call the API, in which role."""

from typing import Annotated

import typer

from fleet.cli import duration, session
from fleet.cli.output import Column, complain, say, time

app = session.noun("API tokens. The service keeps a hash only: a token is shown once, when it is made.")

ROLES = "viewer, operator, hardware, control-plane, agent or admin"

COLUMNS: tuple[Column, ...] = (
    ("ID", "id"),
    ("NAME", "name"),
    ("ROLE", "role"),
    ("MACHINE", "machine"),
    ("CREATED", lambda row: time(row.get("created_at"))),
    ("BY", "created_by"),
    ("EXPIRES", lambda row: time(row.get("expires_at")) or "never"),
    ("LAST USED", lambda row: time(row.get("last_used_at")) or "never"),
    ("FROM", "last_used_from"),
    ("REVOKED", lambda row: time(row.get("revoked_at"))),
)


@app.command()
def create(
    context: typer.Context,
    name: Annotated[str, typer.Option("--name", help="Who it is for; the actor in audit entries.")],
    role: Annotated[str, typer.Option("--role", help=ROLES)],
    machine: Annotated[
        str | None, typer.Option("--machine", metavar="NAME", help="The one that an agent speaks for; agents only.")
    ] = None,
    expires: duration.Expires = None,
) -> None:
    """Make a token and print it, this once."""
    here = session.of(context)
    said = {"name": name, "role": role, "machine": machine, "expires_in_s": expires}
    body = {key: value for key, value in said.items() if value is not None}
    with here.connect() as client:
        made = client.post("/v1/tokens", body)
    here.answer(made, lambda: say(str(made["token"])))
    if not here.json:
        complain(f"Token {made['id']} for {name}, role {role}: keep it, it is not shown again.")


@app.command("list")
def list_(context: typer.Context, limit: session.Limit = None, cursor: session.Cursor = None) -> None:
    """Tokens, without their secrets."""
    here = session.of(context)
    with here.connect() as client:
        page = client.rows("/v1/tokens", None, limit, cursor)
    here.answer_list(page, COLUMNS, "No tokens.")


@app.command()
def revoke(context: typer.Context, token_id: Annotated[str, typer.Argument(metavar="ID")]) -> None:
    """Make a token worthless at once."""
    here = session.of(context)
    with here.connect() as client:
        gone = client.post(f"/v1/tokens/{session.segment(token_id)}/revoke")
    here.answer(gone, lambda: say(f"Token {token_id} is revoked."))
