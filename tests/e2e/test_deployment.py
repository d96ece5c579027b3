"""The compose file's servers run with TLS and tokens of make-secrets."""

import json
import ssl
import subprocess
from pathlib import Path

import openai
import pytest

from specwhisper.model.checkpoints.names import DEMO_FOLDER
from tests.deploy.manifests import DEPLOY, PROGRAMS, SECRETS, in_compose
from tests.e2e.processes import Server, run_client

SAMPLES = DEMO_FOLDER / "samples"
SPOKEN = json.loads((SAMPLES / "metadata.jsonl").read_text().splitlines()[0])
RECORDING = SAMPLES / SPOKEN["file_name"]
pytestmark = [pytest.mark.timeout(600), pytest.mark.nightly]


@pytest.fixture(scope="module")
def secrets(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("deployment") / "secrets"
    subprocess.run([DEPLOY / "make-secrets", folder], check=True, capture_output=True, timeout=60)
    return folder


@pytest.fixture(scope="module")
def ports(secrets, unused_tcp_port_factory):
    """Start all three servers on this machine; return their ports by role."""
    found = {role: str(unused_tcp_port_factory()) for role in PROGRAMS}
    servers = []
    try:
        for started in in_compose("compose.yaml"):
            arguments = [
                argument.replace(SECRETS, f"{secrets / started.role}/")
                .replace("target:50052", f"127.0.0.1:{found['target']}")
                .replace("draft:50051", f"127.0.0.1:{found['draft']}")
                for argument in started.arguments
            ]
            if started.role != "gateway":
                arguments.append("--metrics-port=0")
            module = started.program.replace("-", "_")
            servers.append(Server(module, *arguments, "--port", found[started.role]))
        for server in servers:
            assert server.address
        yield found
    finally:
        for server in servers:
            server.end()


def client(secrets: Path, *arguments: object, token: str = "client/draft-token") -> tuple[int, str, str]:
    roots = secrets / "client" / "roots.pem"
    trust = ("--use-ssl", "--ssl-root-cert", roots, "--token-file", secrets / token)
    return run_client(*trust, *arguments)


def test_the_command_line_and_openais_client_transcribe(ports, secrets):
    options = ("--server", f"localhost:{ports['draft']}", "--language", "en", "--quiet")
    status, out, err = client(secrets, "transcribe", RECORDING, *options)
    assert (status, err) == (0, "")
    assert out.split() == SPOKEN["text"].split()
    trusted = ssl.create_default_context(cafile=secrets / "client" / "roots.pem")
    with openai.OpenAI(
        base_url=f"https://localhost:{ports['gateway']}/v1",
        api_key=(secrets / "client" / "gateway-token").read_text().strip(),
        max_retries=0,
        http_client=openai.DefaultHttpxClient(verify=trusted),
    ) as api:
        transcription = api.audio.transcriptions.create(file=RECORDING, model="whisper-1", language="en")
        assert transcription.text.split() == out.split()
        with pytest.raises(openai.AuthenticationError):
            api.with_options(api_key="another-key-of-16").models.list()


def test_all_three_servers_answer_their_probes(ports, secrets):
    for role, scheme in (("target", ""), ("draft", ""), ("gateway", "https://")):
        server = f"{scheme}127.0.0.1:{ports[role]}"
        trust = ("--use-ssl", "--ssl-root-cert", secrets / role / "roots.pem")
        assert run_client(*trust, "health", "--server", server) == (0, "serving\n", "")
        status, _, err = run_client("health", "--server", server)
        assert status == 1, f"{role} answered a client without its CA"
        assert server in err


def test_a_token_of_another_role_is_refused(ports, secrets):
    """The target refuses the token that the gateway sends to the draft server."""
    asked = ("models", "--server", f"localhost:{ports['target']}")
    status, _, err = client(secrets, *asked, token="gateway/draft-token")
    assert status == 1
    assert "does not know the token" in err
