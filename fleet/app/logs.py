"""Where the service's own log goes: one JSON document a line, to standard error or to a file of bounded size."""

import logging
import sys
from logging.handlers import RotatingFileHandler
from pathlib import Path

import structlog

_FILE_BYTES = 10 << 20
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def start(level: str, file: Path | None = None) -> None:
    logging.raiseExceptions = False  # a log that cannot be written (disk full) must not fill a terminal with tracebacks
    handler: logging.Handler
    if file is None:
        handler = logging.StreamHandler(sys.stderr)
    else:
        handler = RotatingFileHandler(file, maxBytes=_FILE_BYTES, backupCount=3)
        file.chmod(0o600)
    stamp = structlog.processors.TimeStamper(fmt="iso", utc=True)
    shared: list[structlog.types.Processor] = [structlog.stdlib.add_log_level, structlog.stdlib.add_logger_name, stamp]
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                structlog.processors.JSONRenderer(),  # ASCII only: a log line cannot move a terminal's cursor
            ],
        )
    )
    logging.basicConfig(level=_LEVELS[level], handlers=[handler], force=True)
    for chatty in ("paramiko", "alembic", "httpx", "httpcore", "uvicorn.access"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        cache_logger_on_first_use=True,
    )
