"""Where the service's own log goes: one JSON document a line (or text for people), to standard error or to a file of bounded
size. Every line of a request carries its `request`; every line of a step its `run`, `kind`, `subject` and the record's id, such
as `validation`, whichever part or library wrote it."""

import logging
import sys
from collections.abc import MutableMapping
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, Literal

import structlog
from structlog.contextvars import merge_contextvars

_FILE_BYTES = 10 << 20
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def start(level: str, file: Path | None = None, form: Literal["json", "text"] = "json") -> None:
    logging.raiseExceptions = False  # a log that cannot be written (disk full) must not fill a terminal with tracebacks
    handler: logging.Handler
    if file is None:
        handler = logging.StreamHandler(sys.stderr)
    else:
        handler = RotatingFileHandler(file, maxBytes=_FILE_BYTES, backupCount=3)
        file.chmod(0o600)
    stamp = structlog.processors.TimeStamper(fmt="iso", utc=True)
    shared: list[structlog.types.Processor] = [
        merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        stamp,
    ]
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                # ASCII only: a log line cannot move a terminal's cursor
                structlog.processors.JSONRenderer() if form == "json" else _text,
            ],
        )
    )
    # in detail, libraries say what they send, keys and tokens included: `debug` is for what is ours
    logging.basicConfig(level=max(_LEVELS[level], logging.INFO), handlers=[handler], force=True)
    logging.getLogger("fleet").setLevel(_LEVELS[level])
    for chatty in ("paramiko", "alembic", "httpx", "httpcore", "uvicorn.access"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        cache_logger_on_first_use=True,
    )


def _text(_logger: object, _method: str, line: MutableMapping[str, Any]) -> str:
    """`time LEVEL event name=value ...`, and a traceback below it; ASCII without control characters, as JSON is."""
    trace = str(line.pop("exception", "")).splitlines()
    head = [str(line.pop("timestamp")), str(line.pop("level")).upper(), _plain(line.pop("event"))]
    return "\n".join([" ".join([*head, *(f"{name}={value!a}" for name, value in line.items())]), *map(_plain, trace)])


def _plain(value: object) -> str:
    return ascii(str(value))[1:-1]
