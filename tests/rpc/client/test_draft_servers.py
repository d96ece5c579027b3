"""Sessions are spread over a name's draft servers, except full and lost ones."""

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trustme

from experiments.common.servers.proxy import Proxy
from specwhisper.errors import InvalidRequest, ServerFull, TargetUnavailable, UnsafeBind
from specwhisper.rpc.channels import OPEN, Credentials
from specwhisper.rpc.serving import RunningServer, start_server
from specwhisper.rpc.serving_options import ServingOptions
from specwhisper.rpc.tls import ClientTls, ServerTls
from specwhisper.wire.v1 import transcription_pb2_grpc as rpc
from specwhisper_client import resolving
from specwhisper_client.api import TranscriptionClient
from specwhisper_client.resolving import Name, read_names
from specwhisper_client.servers import CONNECTIONS, Attempts, Servers
from tests.certificates import save
from tests.rpc.client_scripts import ScriptedTranscription
from tests.rpc.services import TRANSCRIPTION, eventually

NAME = "drafts.example"
HOSTS = ("127.0.0.1", "127.0.0.2", "127.0.0.3")


class Draft(ScriptedTranscription):
    """A draft server that counts calls and holds them until released."""

    def __init__(self) -> None:
        super().__init__()
        self.num_calls = 0
        self.num_open = 0
        self.is_full = False
        self.released = asyncio.Event()

    async def Recognize(self, request, context):
        self.num_calls += 1
        if self.is_full:
            raise ServerFull("No slot is free.")
        self.num_open += 1
        try:
            await self.released.wait()
            return await super().Recognize(request, context)
        finally:
            self.num_open -= 1


class Fleet:
    """Draft servers on addresses of their own, by a name that this test resolves.

    Attributes
    ----------
    addresses : what the name resolves to; empty for an unknown name.
    num_lookups : how often the name was looked up.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self.drafts: dict[str, Draft] = {}
        self.servers: dict[str, RunningServer] = {}
        self.addresses: list[str] = []
        self.num_lookups = 0

    @property
    def name(self) -> str:
        return f"{NAME}:{self.port}"

    async def start(self, *hosts: str, is_held: bool = False, tls: ServerTls | None = None) -> list[Draft]:
        """Start draft servers, and name them; those that are held answer once they are released."""
        for host in hosts:
            draft = self.drafts[host] = Draft()
            if not is_held:
                draft.released.set()
            add = partial(rpc.add_TranscriptionServicer_to_server, draft)
            options = ServingOptions(host=host, port=self.port, tls=tls, insecure=True)
            self.servers[host] = await start_server({TRANSCRIPTION: add}, options)
            self.addresses.append(host)
        return [self.drafts[host] for host in hosts]

    async def getaddrinfo(self, host: str, port: int, **_) -> list[tuple]:
        self.num_lookups += 1
        assert (host, port) == (NAME, self.port)
        if not self.addresses:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in self.addresses]

    def release(self) -> None:
        for draft in self.drafts.values():
            draft.released.set()

    def num_open(self) -> list[int]:
        return sorted(draft.num_open for draft in self.drafts.values())


@pytest.fixture
async def fleet(monkeypatch, unused_tcp_port) -> AsyncIterator[Fleet]:
    made = Fleet(unused_tcp_port)
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", made.getaddrinfo)
    monkeypatch.setattr(resolving, "REFRESH_S", 0.0)
    yield made
    made.release()
    for server in made.servers.values():
        await server.stop(drain_timeout_s=1.0)


@asynccontextmanager
async def calling(client: TranscriptionClient, number: int) -> AsyncIterator[list[asyncio.Task]]:
    calls = [asyncio.create_task(client.recognize(b"audio")) for _ in range(number)]
    try:
        yield calls
    finally:
        await asyncio.gather(*calls)


@pytest.mark.parametrize("scheme", ["", "dns:///"])
async def test_sessions_spread_over_all_addresses_of_a_name(fleet, scheme):
    await fleet.start(*HOSTS, is_held=True)
    async with TranscriptionClient(scheme + fleet.name) as client:
        async with calling(client, 9):
            await eventually(lambda: fleet.num_open() == [3, 3, 3])
            fleet.release()
        assert all(len(draft.recognized.audio) for draft in fleet.drafts.values())
        for _ in range(21):  # one after the other they use the servers in turn
            await client.recognize(b"audio")
    assert [draft.num_calls for draft in fleet.drafts.values()] == [10, 10, 10]


async def test_clients_with_one_session_each_are_spread(fleet):
    """Each client has its own connections, so only chance can spread them."""
    await fleet.start(*HOSTS)
    for _ in range(60):
        async with TranscriptionClient(fleet.name) as client:
            await client.recognize(b"audio")
    assert min(draft.num_calls for draft in fleet.drafts.values()) >= 5, "fails three times in a million"


async def test_a_full_server_is_avoided_and_all_full_ones_are_asked_once(fleet):
    full, free = await fleet.start(*HOSTS[:2])
    full.is_full = True
    async with TranscriptionClient(fleet.name) as client:
        for _ in range(10):
            await client.recognize(b"audio")
        assert (full.num_calls, free.num_calls) == (1, 10)
        free.is_full = True
        with pytest.raises(ServerFull, match="No slot is free"):
            await client.recognize(b"audio")
        assert (full.num_calls, free.num_calls) == (2, 11)


async def test_a_lost_server_is_avoided_and_a_new_one_is_used(fleet):
    await fleet.start(*HOSTS[:2])
    async with TranscriptionClient(fleet.name) as client:
        for _ in range(4):
            await client.recognize(b"audio")
        await fleet.servers.pop(HOSTS[0]).stop(drain_timeout_s=0)
        for _ in range(4):  # the name still resolves to its address
            await client.recognize(b"audio")
        assert [draft.num_calls for draft in fleet.drafts.values()] == [2, 6]
        fleet.addresses.remove(HOSTS[0])
        await fleet.start(HOSTS[2])
        for _ in range(4):
            await client.recognize(b"audio")
        assert [draft.num_calls for draft in fleet.drafts.values()] == [2, 8, 2]
        for host in HOSTS[1:]:  # all are replaced at once
            await fleet.servers.pop(host).stop(drain_timeout_s=0)
        fleet.addresses.clear()
        await fleet.start(HOSTS[0])
        await client.recognize(b"audio")


async def test_an_unknown_name_is_in_the_error_unless_an_address_is_known(fleet):
    async with TranscriptionClient(fleet.name) as client:
        error = rf"name in {fleet.name} cannot be resolved \(Name or service not known"
        with pytest.raises(TargetUnavailable, match=error):
            await client.recognize(b"audio")
        await fleet.start(HOSTS[0])
        await client.recognize(b"audio")
        fleet.addresses.clear()
        await client.recognize(b"audio")
    assert fleet.num_lookups == 3


async def test_a_name_that_dns_cannot_encode_is_in_the_error():
    async with TranscriptionClient("a..b:50051") as client:
        with pytest.raises(TargetUnavailable, match=r"name in a\.\.b:50051 cannot be resolved \(encoding"):
            await client.recognize(b"audio")


async def test_addresses_are_looked_up_again_only_when_they_expire(fleet, monkeypatch):
    monkeypatch.setattr(resolving, "REFRESH_S", 60.0)
    await fleet.start(HOSTS[0])
    async with TranscriptionClient(fleet.name) as client:
        await asyncio.gather(*(client.recognize(b"audio") for _ in range(10)))
        await client.recognize(b"audio")
    assert fleet.num_lookups == 1


async def test_a_slow_lookup_delays_only_the_first_session(fleet, monkeypatch):
    monkeypatch.setattr(resolving, "WAIT_S", 0.01)
    await fleet.start(HOSTS[0])
    async with TranscriptionClient(fleet.name) as client:
        await client.recognize(b"audio")
        hangs = asyncio.get_running_loop().create_future()
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", lambda *_, **__: hangs)
        await client.recognize(b"audio")
    assert hangs.cancelled()


async def test_the_certificate_is_verified_against_the_name(fleet, tmp_path):
    authority = trustme.CA()
    await fleet.start(*HOSTS[:2], tls=save(authority, tmp_path, "own", NAME))
    credentials = Credentials(ClientTls(tmp_path / "roots.pem"))
    async with TranscriptionClient(fleet.name, credentials) as client:
        for _ in range(4):
            await client.recognize(b"audio")
    assert [draft.num_calls for draft in fleet.drafts.values()] == [2, 2]

    # Its certificate has the address, not the name.
    [stranger] = await fleet.start(HOSTS[2], tls=save(authority, tmp_path, "other", HOSTS[2]))
    fleet.addresses = [HOSTS[2]]
    async with TranscriptionClient(fleet.name, credentials) as client:
        with pytest.raises(TargetUnavailable, match=r"is not trusted \(Hostname"):
            await client.recognize(b"audio")
    assert not stranger.num_calls


async def test_a_connection_balancer_receives_several_connections(fleet):
    """kube-proxy spreads connections to a service's address over its pods."""
    await fleet.start(*HOSTS[:2], is_held=True)
    async with Proxy.listening() as balancer, TranscriptionClient(balancer.address) as client:
        balancer.upstream = ",".join(f"{host}:{fleet.port}" for host in HOSTS[:2])
        async with calling(client, 100):
            await eventually(lambda: sum(fleet.num_open()) == 100)
            assert fleet.num_open() == [50, 50]
            assert balancer.num_accepted == CONNECTIONS
            fleet.release()
        [full, free] = fleet.drafts.values()
        full.is_full = True
        for _ in range(10):  # each time another connection to the full one is replaced
            await client.recognize(b"audio")
        assert free.num_calls == 60


async def test_the_preferred_address_family_is_used_while_it_answers(fleet):
    fleet.addresses = ["2001:db8::1", "2001:db8::2", "10.0.0.1"]
    servers = Servers(fleet.name)
    picked: Counter[str] = Counter()
    for _ in range(10):
        async with Attempts(servers).connection() as connection:
            picked[connection.key[1]] += 1
    assert picked == {f"[2001:db8::1]:{fleet.port}": 5, f"[2001:db8::2]:{fleet.port}": 5}
    attempts = Attempts(servers)
    for _ in range(2):
        async with attempts.connection() as connection:
            await attempts.retry(TargetUnavailable("It is away."))
    async with attempts.connection() as connection:
        assert connection.key[1] == f"10.0.0.1:{fleet.port}"
    with pytest.raises(TargetUnavailable, match="It is away"):  # all were tried
        await attempts.retry(TargetUnavailable("It is away."))
    await servers.close()


def test_names_are_read_with_their_schemes():
    assert read_names("a:1, dns:///b:2,a:1, locator:///[::1]:3") == [
        Name("a:1"),
        Name("b:2"),
        Name("[::1]:3", is_locator=True),
    ]
    for wrong in ("", "a", "dns://8.8.8.8/a:1", "http://a:1", "locator:///a"):
        with pytest.raises(InvalidRequest, match="HOST:PORT"):
            read_names(wrong)
    with pytest.raises(InvalidRequest, match=r"server is 5: it must be text, as '127.0.0.1:50051'"):
        read_names(5)


@pytest.mark.parametrize(
    ("address", "exceptions", "is_looked_up"),
    [
        *((address, None, False) for address in ("127.0.0.1:1", "[::1]:1", "localhost:1")),
        *((f"{NAME}:1", exceptions, False) for exceptions in ("", "other.example")),
        *((f"{NAME}:1", exceptions, True) for exceptions in (".example", "s.example")),
    ],
)
def test_addresses_and_localhost_are_not_looked_up_and_a_proxy_resolves_names(
    monkeypatch, address, exceptions, is_looked_up
):
    if exceptions is not None:
        monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
        monkeypatch.setenv("no_proxy", exceptions)
    [name] = read_names(address)
    assert (resolving.resolver(name, OPEN) is not None) == is_looked_up


def test_a_token_on_an_unencrypted_connection_is_refused_at_once():
    with pytest.raises(UnsafeBind, match=NAME):
        Servers(f"{NAME}:1", Credentials(token="0123456789abcdef"))
