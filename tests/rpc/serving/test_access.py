"""Every call needs a valid token, and TLS where it is configured."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio
import pytest
import trustme
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from specwhisper.errors import InvalidRequest, TargetUnavailable, Unauthenticated, UnsafeBind
from specwhisper.observe.current_call import caller
from specwhisper.rpc.channels import Credentials, open_channel, with_true_status
from specwhisper.rpc.serving_options import ServingOptions
from specwhisper.rpc.tls import ClientTls, ServerTls
from specwhisper.rpc.tokens import Tokens, read_tokens
from specwhisper.wire.status import error_from_rpc
from specwhisper.wire.v1 import verification_pb2 as pb
from specwhisper.wire.v1 import verification_pb2_grpc
from tests.certificates import save
from tests.rpc.methods import FILES, OF_ALL, methods_of
from tests.rpc.services import as_target, check_error, draft_server, error_of, running, target_server

TOKEN = "0123456789abcdef-Right"
FORMER = "a-token-of-a-former-user"
TOKENS = Tokens({TOKEN: "anna", "another-token-of-hers": "anna"})
SERVICE = "specwhisper.wire.v1.Verification"
METHODS = list(methods_of(*(file for files in FILES.values() for file in files if file not in OF_ALL)))
OPEN = list(methods_of(health_pb2))
WITHIN_S = 30.0  # also on a busy machine
OTHERS = [
    *methods_of(reflection_pb2),
    "/specwhisper.wire.v1.Verification/NoSuchMethod",
    "/no.such.Service/Method",
]
HEADERS = (  # without a valid token
    None,
    "",
    TOKEN,
    "Bearer ",
    "Bearer 0123456789abcdef-Wrong",
    f"Bearer {TOKEN[:-1]}",
    f"Bearer {TOKEN}x",
    f"Bearer {TOKEN.upper()}",
    f"Basic {TOKEN}",
)


class Everything(grpc.GenericRpcHandler):
    """Has a method of every name, and records which were called."""

    def __init__(self) -> None:
        self.entered: list[str] = []

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        async def enter(requests, context):
            self.entered.append(details.method)
            yield b""

        return grpc.stream_stream_rpc_method_handler(enter)


class Naming(verification_pb2_grpc.VerificationServicer):
    """Returns the name of its caller."""

    async def Locate(self, request, context):
        return pb.LocateResponse(address=caller.get())

    async def Verify(self, requests, context):
        async for _ in requests:
            yield pb.VerifyResponse(going_away=pb.GoingAway(reason=caller.get()))


@asynccontextmanager
async def serving(**options) -> AsyncIterator[str]:
    async with as_target(Naming(), ServingOptions(**options)) as server:
        yield server.address


@asynccontextmanager
async def serving_everything(**options) -> AsyncIterator[tuple[str, Everything]]:
    everything = Everything()
    add = {SERVICE: lambda server: server.add_generic_rpc_handlers((everything,))}
    async with running(add, ServingOptions(**options)) as server:
        yield server.address, everything


async def located(address: str, credentials: Credentials) -> str:
    """Call Locate, and return the caller's name at the server."""
    async with open_channel(address, credentials) as channel:
        stub = verification_pb2_grpc.VerificationStub(channel)
        try:
            return (await stub.Locate(pb.LocateRequest(), timeout=WITHIN_S)).address
        except grpc.aio.AioRpcError as error:
            raise error_from_rpc(error, address) from error


async def test_every_service_is_one_whose_methods_are_tested():
    """A new one must be among those that the tests here and the fuzz tests call."""
    asked = reflection_pb2.ServerReflectionRequest(list_services="")
    async with target_server() as target, draft_server(target.address) as draft:
        for kind, server in (("target", target), ("draft", draft)):
            async with open_channel(server.address) as channel:
                stub = reflection_pb2_grpc.ServerReflectionStub(channel)
                answer = await stub.ServerReflectionInfo(iter([asked])).read()
            offered = {service.name for service in answer.list_services_response.service}
            assert offered == {path.split("/")[1] for path in methods_of(*FILES[kind])}


async def test_calls_without_a_valid_token_are_refused():
    async with (
        serving_everything(tokens=TOKENS) as (address, everything),
        open_channel(address) as channel,
    ):
        for header in HEADERS:
            metadata = () if header is None else (("authorization", header),)
            for method in [*METHODS, *OTHERS]:
                for ask in (
                    lambda: channel.unary_unary(method)(b"", metadata=metadata, timeout=WITHIN_S),  # noqa: B023
                    lambda: channel.stream_stream(method)(iter([b""]), metadata=metadata, timeout=WITHIN_S),  # noqa: B023
                ):
                    error = await error_of(with_true_status(ask()))
                    assert type(error) is Unauthenticated, (header, method)
        assert not everything.entered
        health = health_pb2_grpc.HealthStub(channel)
        assert (await health.Check(health_pb2.HealthCheckRequest(service=SERVICE))).status == 1
        await enter_all(channel, TOKEN)
        assert everything.entered == [*METHODS, *OTHERS[1:]]


async def enter_all(channel: grpc.aio.Channel, token: str) -> None:
    """Call every method with a token, which must succeed."""
    metadata = (("authorization", f"Bearer {token}"),)
    for method in [*METHODS, *OTHERS[1:]]:
        call = channel.stream_stream(method)(iter([b""]), metadata=metadata, timeout=WITHIN_S)
        assert [answer async for answer in call] == [b""], method


async def test_an_open_session_continues_after_its_token_was_removed(tmp_path):
    file = tmp_path / "tokens"
    file.write_text(f"ben {FORMER}\n")
    async with serving(tokens=read_tokens(file)) as address:
        async with open_channel(address, Credentials(token=FORMER)) as channel:
            call = verification_pb2_grpc.VerificationStub(channel).Verify()
            await call.write(pb.VerifyRequest())
            assert (await call.read()).going_away.reason == "ben"
            file.write_text(f"# ben has left\nanna {TOKEN}\n")
            with pytest.raises(Unauthenticated):
                await located(address, Credentials(token=FORMER))
            await call.write(pb.VerifyRequest())
            assert (await call.read()).going_away.reason == "ben"
            call.cancel()


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    save(stranger := trustme.CA(), folder, "stranger")
    stranger.cert_pem.write_to_path(folder / "others.pem")
    own = trustme.CA()
    for name in ("localhost", "client"):
        save(own, folder, name)
    return folder


def server_tls(folder: Path, *, is_mutual: bool = False) -> ServerTls:
    return ServerTls(
        folder / "localhost.pem", folder / "localhost.key", folder / "roots.pem" if is_mutual else None
    )


def test_invalid_certificates_are_refused_at_start(folder, tmp_path):
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("-----BEGIN nonsense")
    localhost, client = (folder / "localhost.pem", folder / "localhost.key"), folder / "client.key"
    for shown in (lambda: ServerTls(localhost[0], client), lambda: ClientTls(None, localhost[0], client)):
        with pytest.raises(InvalidRequest, match="cannot be used together"):
            shown()
    for shown in (lambda: ServerTls(*localhost, nonsense), lambda: ClientTls(nonsense)):
        with pytest.raises(InvalidRequest, match="has no certificates to trust"):
            shown()


def client_tls(roots: str, own: str | None = None, name: str | None = None) -> Callable[[Path], ClientTls]:
    files = [] if own is None else [f"{own}.pem", f"{own}.key"]
    return lambda folder: ClientTls(
        folder / f"{roots}.pem", *(folder / file for file in files), server_name=name
    )


# The server's TLS, if any; the client's; what the error says.
UNTRUSTED = {
    "plaintext": ("plain", None, "closes new connections: does it require encryption"),
    "plaintext where certificates are asked for": ("mutual", None, "closes new connections"),
    "encryption that the server lacks": (None, client_tls("roots"), "does not encrypt"),
    "untrusted authority": ("plain", client_tls("others"), "not trusted .unable to get local issuer"),
    "another name": ("plain", client_tls("roots", name="elsewhere.example"), "not trusted .Hostname"),
    "no certificate": ("mutual", client_tls("roots"), "connections: does it require .* certificate"),
    "a certificate of another authority": ("mutual", client_tls("roots", "stranger"), "new connections"),
}


@pytest.mark.parametrize("case", UNTRUSTED)
async def test_no_method_is_reached_over_an_untrusted_connection(case, folder):
    """The connection fails with one sentence, even with a valid token."""
    kind, shown, message = UNTRUSTED[case]
    tls = None if shown is None else shown(folder)
    right = ClientTls(folder / "roots.pem", folder / "client.pem", folder / "client.key") if kind else None
    metadata = (("authorization", f"Bearer {TOKEN}"),)
    server = server_tls(folder, is_mutual=kind == "mutual") if kind else None
    async with serving_everything(tls=server, tokens=TOKENS) as (address, everything):
        async with open_channel(address, Credentials(tls)) as channel:
            for method in [*METHODS, *OTHERS, *OPEN]:
                call = channel.stream_stream(method)(iter([b""]), metadata=metadata, timeout=WITHIN_S)
                check_error(await error_of(call), TargetUnavailable, message)
        assert not everything.entered
        async with open_channel(address, Credentials(right)) as channel:
            await enter_all(channel, TOKEN)
        assert everything.entered == [*METHODS, *OTHERS[1:]]


async def test_a_certificate_may_have_a_name_other_than_the_address(tmp_path):
    tls = save(trustme.CA(), tmp_path, "server", "targets.example")
    named = ClientTls(tmp_path / "roots.pem", server_name="targets.example")
    async with serving(tls=tls) as address:
        assert await located(address, Credentials(named)) == ""


async def test_a_new_certificate_needs_no_restart(folder, tmp_path):
    for name in ("localhost.pem", "localhost.key"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    async with serving(tls=server_tls(tmp_path)) as address:
        trusting = Credentials(ClientTls(folder / "roots.pem"))
        assert await located(address, trusting) == ""
        save(trustme.CA(), tmp_path, "localhost")
        assert await located(address, Credentials(ClientTls(tmp_path / "roots.pem"))) == ""
        (tmp_path / "localhost.pem").write_text("half written")
        assert await located(address, Credentials(ClientTls(tmp_path / "roots.pem"))) == ""


def test_a_server_needs_encryption_and_authentication_to_listen_on_the_network(folder):
    tls, mutual = server_tls(folder), server_tls(folder, is_mutual=True)
    for protection, lacks in (
        ({}, "encryption and without authentication"),
        ({"tokens": TOKENS}, "without encryption to"),
        ({"tls": tls}, "without authentication"),
    ):
        with pytest.raises(UnsafeBind, match=lacks):
            ServingOptions(host="0.0.0.0", **protection)
        ServingOptions(host="0.0.0.0", insecure=True, **protection)
    with pytest.raises(UnsafeBind):
        ServingOptions(metrics_host="0.0.0.0")
    ServingOptions(host="0.0.0.0", tls=tls, tokens=TOKENS)
    ServingOptions(host="0.0.0.0", tls=mutual)


async def test_a_token_is_never_sent_unencrypted_to_another_machine():
    with pytest.raises(UnsafeBind, match="others can read it"):
        open_channel("192.0.2.7:50052", Credentials(token=TOKEN))
