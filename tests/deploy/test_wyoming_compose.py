"""The compose file of the Wyoming server agrees with its flags and with the file beside it."""

from __future__ import annotations

import re

import typer
import yaml

from specwhisper import __version__
from specwhisper.settings.command_line import app_of
from specwhisper_wyoming.config import TcpAddress, WyomingConfig, read_uri
from tests.deploy.manifests import DEPLOY, INIT, SECRETS, read_compose
from tests.deploy.test_manifests import tool

NAME = "compose.wyoming.yaml"


def test_it_is_valid_and_adds_one_service():
    checked = tool("check-jsonschema", "--builtin-schema", "vendor.compose-spec", DEPLOY / NAME)
    assert checked.returncode == 0, checked.stdout
    assert read_compose(NAME)["services"].keys() == {"wyoming"}


def test_its_flags_exist_and_lead_to_the_draft_server():
    service, base = read_compose(NAME)["services"]["wyoming"], read_compose("compose.yaml")["services"]
    command = typer.main.get_command(app_of(WyomingConfig, lambda **_: None))
    flags = command.make_context("specwhisper-wyoming", list(service["command"])).params
    assert service["entrypoint"] == [*INIT, "specwhisper-wyoming"]
    assert read_uri(flags["uri"]) == TcpAddress("0.0.0.0", 10300)
    gateway = "\n".join(base["gateway"]["command"])
    for flag in ("server", "server-use-ssl", "server-root-cert", "server-token-file"):
        [line] = [word for word in service["command"] if word.partition("=")[0] == f"--{flag}"]
        assert line in gateway
    grace_s = int(service["stop_grace_period"].removesuffix("s"))
    assert grace_s > flags["drain_timeout"]


def test_it_sees_only_the_secrets_that_it_reads_and_is_as_closed_as_the_others():
    service, base = read_compose(NAME)["services"]["wyoming"], read_compose("compose.yaml")["services"]
    read = set(re.findall(rf"{SECRETS}([\w.-]+)", " ".join(service["command"])))
    assert read == {"roots.pem", "draft-token"}
    assert set(service["volumes"]) == {f"./secrets/gateway/{name}:{SECRETS}{name}:ro" for name in read}
    for key in (
        "build",
        "depends_on",
        "restart",
        "read_only",
        "cap_drop",
        "security_opt",
        "stop_grace_period",
    ):
        assert service[key] == base["gateway"][key]
    assert service["ports"] == ["127.0.0.1:10300:10300"]
    assert service["image"] == base["gateway"]["image"] == f"specwhisper-gateway:{__version__}"


def test_the_pages_settings_are_those_of_the_file():
    page = (DEPLOY.parent / "docs" / "integrations.md").read_text()
    [block] = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    shown = yaml.safe_load(block)["services"]["specwhisper"]
    command = typer.main.get_command(app_of(WyomingConfig, lambda **_: None))
    assert command.make_context("specwhisper-wyoming", list(shown["command"])).params["insecure"]
