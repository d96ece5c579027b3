"""Log lines that machines and people can read."""

import io
import json
import logging

import pytest

from specwhisper.wire.logs import LogFormat, LogLevel, configure_logging


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def restored_logging():
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield logging.getLogger("specwhisper.test")
    root.handlers[:], root.level = handlers, level


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
    restored_logging.warning("opened", extra={"caller": "é\n12:00:00 error all is lost\x1b[31m"})
    assert stream.getvalue().endswith("caller=é\\x0a12:00:00 error all is lost\\x1b[31m\n")


@pytest.mark.parametrize(("stream", "is_json"), [(Terminal(), False), (io.StringIO(), True)])
def test_auto_is_text_on_a_terminal_only(restored_logging, stream, is_json):
    configure_logging(stream=stream)
    restored_logging.info("ready")
    assert stream.getvalue().startswith("{") is is_json


def test_the_level_hides_what_is_below_it(restored_logging):
    stream = io.StringIO()
    configure_logging(LogFormat.TEXT, LogLevel.ERROR, stream)
    restored_logging.warning("hidden")
    assert stream.getvalue() == ""
