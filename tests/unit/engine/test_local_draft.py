"""The command and environment of a draft server that the client starts."""

from specwhisper.rpc.channels import Credentials
from specwhisper.rpc.tls import ClientTls
from specwhisper_client.cli.tune_command import Pair


def test_a_token_is_passed_in_the_environment_and_not_on_the_command_line():
    token = "0123456789abcdef"
    pair = Pair("gpu:50052", "tiny", credentials=Credentials(ClientTls(server_name="target"), token))
    assert pair.environment == {"SPECWHISPER_TARGET_TOKEN": token}
    assert not any(token in word for word in pair.command)
    assert pair.command[-3:] == ["--target-use-ssl", "--target-server-name", "target"]


def test_a_target_without_credentials_needs_no_options():
    pair = Pair("127.0.0.1:50052", "tiny")
    assert pair.environment == {}
    assert "--target-use-ssl" not in pair.command
