"""Structured logs: the event is the message, its facts are in ``extra``."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, TextIO

from specwhisper.observe.current_call import request_id
from specwhisper.printable import escaped

STANDARD_FIELDS = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


class LogFormat(StrEnum):
    """How log lines look; ``auto`` is text on a terminal and JSON elsewhere."""

    AUTO = "auto"
    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


# Their debug lines hold whole headers, and so callers' keys.
HTTP_LIBRARIES = ("uvicorn", "websockets", "httpcore", "httpcore2", "hpack")


def extra_fields(record: logging.LogRecord) -> dict[str, Any]:
    fields = record.__dict__.items()
    # Ray adds private fields to every record.
    return {name: value for name, value in fields if name not in STANDARD_FIELDS and not name.startswith("_")}


class JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        } | extra_fields(record)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=True)


class TextFormatter(logging.Formatter):
    """A line of text: time, level, logger, event, facts as ``name=value``.

    Text from peers is escaped: it cannot forge a line or colour it.
    """

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created).strftime("%H:%M:%S.%f")[:-3]
        facts = "".join(f" {name}={escaped(str(value))}" for name, value in extra_fields(record).items())
        message = escaped(record.getMessage().rstrip())
        lines = [f"{time} {record.levelname.lower():<7} {record.name}: {message}{facts}"]
        if record.exc_info:
            lines += map(escaped, self.formatException(record.exc_info).split("\n"))
        return "\n".join(lines)


def _add_request_id(record: logging.LogRecord) -> bool:
    if (name := request_id.get()) and not hasattr(record, "request"):
        record.request = name
    return True


def configure_logging(
    log_format: LogFormat = LogFormat.AUTO, level: LogLevel = LogLevel.INFO, stream: TextIO | None = None
) -> None:
    """Send this process's logs to ``stream``, by default standard error."""
    stream = sys.stderr if stream is None else stream
    as_json = log_format is LogFormat.JSON or (log_format is LogFormat.AUTO and not stream.isatty())
    handler = logging.StreamHandler(stream)
    handler.addFilter(_add_request_id)
    handler.setFormatter(JsonFormatter() if as_json else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name in HTTP_LIBRARIES:
        logging.getLogger(name).setLevel(max(logging.INFO, logging.root.level))
