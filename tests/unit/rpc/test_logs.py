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


def test_json_lines_hold_event_and_facts(restored_logging):
    stream = io.StringIO()
    configure_logging(LogFormat.JSON, stream=stream)
    restored_logging.info("opened", extra={"session": "s1", "slot": 3})
    line = json.loads(stream.getvalue())
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "level": "info",
        "logger": "specwhisper.test",
        "message": "opened",
        "session": "s1",
        "slot": 3,
    }


def test_an_exception_stays_on_its_json_line(restored_logging):
    stream = io.StringIO()
    configure_logging(LogFormat.JSON, stream=stream)
    try:
        raise ValueError("two\nlines")
    except ValueError:
        restored_logging.exception("failed", extra={"object": object})
    (line,) = stream.getvalue().splitlines()
    assert "ValueError: two\nlines" in json.loads(line)["exception"]


def test_text_is_for_people(restored_logging):
    stream = io.StringIO()
    configure_logging(LogFormat.TEXT, stream=stream)
    restored_logging.warning("slow %s", "disk", extra={"seconds": 2})
    assert stream.getvalue().endswith(" warning specwhisper.test: slow disk seconds=2\n")


def test_a_peer_cannot_forge_a_line(restored_logging):
    stream = io.StringIO()
    configure_logging(LogFormat.TEXT, stream=stream)
    forged = "é\n12:00:00 error all is lost\x1b[31m\x9b31m\u2028\u202e"
    written = r"é\n12:00:00 error all is lost\x1b[31m\x9b31m\u2028\u202e"
    restored_logging.warning("of %s", forged, extra={"caller": forged})
    assert stream.getvalue().endswith(f": of {written} caller={written}\n")


def test_text_quoted_by_an_exception_cannot_control_a_terminal(restored_logging):
    stream = io.StringIO()
    configure_logging(LogFormat.TEXT, stream=stream)
    try:
        raise ValueError("red: \x1b[31m \x9b31m \u202e")
    except ValueError:
        restored_logging.exception("failed")
    lines = stream.getvalue().split("\n")
    assert lines[0].endswith("failed") and lines[1].startswith("Traceback")
    assert lines[-2:] == [r"ValueError: red: \x1b[31m \x9b31m \u202e", ""]


def test_json_is_ascii(restored_logging):
    stream = io.StringIO()
    configure_logging(LogFormat.JSON, stream=stream)
    restored_logging.warning("opened", extra={"caller": "é\x9b\u2028\u202e\ud800"})
    assert stream.getvalue().isascii()
    assert json.loads(stream.getvalue())["caller"] == "é\x9b\u2028\u202e\ud800"


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


def test_lines_below_the_level_are_hidden(restored_logging):
    stream = io.StringIO()
    configure_logging(LogFormat.TEXT, LogLevel.ERROR, stream)
    restored_logging.warning("hidden")
    assert stream.getvalue() == ""
