"""Log lines are readable by machines and people."""

import io
import json
import logging

import pytest

from specwhisper.observe.logs import HTTP_LIBRARIES, LogFormat, LogLevel, configure_logging


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def restored_logging():
    root = logging.getLogger()
    handlers, loggers = root.handlers[:], [root, *map(logging.getLogger, HTTP_LIBRARIES)]
    levels = [logger.level for logger in loggers]
    yield logging.getLogger("specwhisper.test")
    root.handlers[:] = handlers
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


@pytest.fixture
def written(restored_logging):
    """Return what a program writes that logs in a format."""

    def written(form, log) -> str:
        stream = io.StringIO()
        configure_logging(form, stream=stream)
        log(restored_logging)
        return stream.getvalue()

    return written


def failing(message: str):
    def log(logger) -> None:
        try:
            raise ValueError(message)
        except ValueError:
            logger.exception("failed", extra={"object": object})

    return log


def test_json_lines_hold_event_and_facts(written):
    line = json.loads(
        written(LogFormat.JSON, lambda log: log.info("opened", extra={"session": "s1", "slot": 3}))
    )
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "level": "info",
        "logger": "specwhisper.test",
        "message": "opened",
        "session": "s1",
        "slot": 3,
    }


def test_an_exception_stays_on_its_json_line(written):
    (line,) = written(LogFormat.JSON, failing("two\nlines")).splitlines()
    assert "ValueError: two\nlines" in json.loads(line)["exception"]


FORGED = "é\n12:00:00 error all is lost\x1b[31m\x9b31m\u2028\u202e"
SHOWN = r"é\n12:00:00 error all is lost\x1b[31m\x9b31m\u2028\u202e"


@pytest.mark.parametrize(
    ("message", "facts", "line"),
    [
        ("slow disk", {"seconds": 2}, " warning specwhisper.test: slow disk seconds=2\n"),
        (FORGED, {"caller": FORGED}, f": {SHOWN} caller={SHOWN}\n"),
    ],
    ids=["for people", "a peer cannot forge a line"],
)
def test_text(written, message, facts, line):
    assert written(LogFormat.TEXT, lambda log: log.warning("%s", message, extra=facts)).endswith(line)


def test_text_quoted_by_an_exception_cannot_control_a_terminal(written):
    lines = written(LogFormat.TEXT, failing("red: \x1b[31m \x9b31m \u202e")).split("\n")
    assert "failed" in lines[0] and lines[1].startswith("Traceback")
    assert lines[-2:] == [r"ValueError: red: \x1b[31m \x9b31m \u202e", ""]


def test_json_is_ascii(written):
    caller = "é\x9b\u2028\u202e\ud800"
    line = written(LogFormat.JSON, lambda log: log.warning("opened", extra={"caller": caller}))
    assert line.isascii()
    assert json.loads(line)["caller"] == caller


@pytest.mark.parametrize("name", HTTP_LIBRARIES)
def test_libraries_do_not_log_headers(restored_logging, name):
    for level, shown in ((LogLevel.DEBUG, ["info"]), (LogLevel.WARNING, [])):
        stream = io.StringIO()
        configure_logging(LogFormat.JSON, level, stream)
        library = logging.getLogger(f"{name}.any")
        library.debug("< Authorization: Bearer 0123456789abcdef")
        library.info("listening")
        assert [json.loads(line)["level"] for line in stream.getvalue().splitlines()] == shown


@pytest.mark.parametrize(("stream", "is_json"), [(Terminal(), False), (io.StringIO(), True)])
def test_auto_is_text_on_a_terminal_only(restored_logging, stream, is_json):
    configure_logging(stream=stream)
    restored_logging.info("ready")
    assert stream.getvalue().startswith("{") is is_json
