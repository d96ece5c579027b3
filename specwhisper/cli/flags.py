"""Command-line options that every server has, spelt and explained the same in all of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from specwhisper import __version__
from specwhisper.errors import InvalidRequest
from specwhisper.observe.logs import LogFormat, LogLevel
from specwhisper.rpc.tls import ServerTls

MODEL_PANEL = "Model"
SERVING_PANEL = "Serving"
TRUST_PANEL = "Trust"
SEEING_PANEL = "Seeing"
MAX_CORES = 4096


def show_version(is_wanted: bool) -> None:
    """Print the version and leave."""
    if is_wanted:
        typer.echo(f"specwhisper {__version__}")
        raise typer.Exit


def parse_cores(text: str | None) -> tuple[int, ...] | None:
    """Read a list of cores and ranges of them."""
    if text is None:
        return None
    cores: list[int] = []
    for part in text.split(","):
        if not re.fullmatch(r"\d+(-\d+)?", part):
            raise InvalidRequest(f"--cores is '{text}': write numbers and ranges, such as 0,2 or 0-3.")
        first, _, last = part.partition("-")
        begin, end = int(first), int(last or first)
        if not begin <= end < MAX_CORES:
            raise InvalidRequest(f"--cores is '{text}': '{part}' is no range of cores below {MAX_CORES}.")
        cores += range(begin, end + 1)
    return tuple(cores)


def server_tls(
    use_ssl: bool,
    is_mutual: bool,
    certificate: Path | None,
    key: Path | None,
    roots: Path | None,
    *,
    protocol: str = "grpc",
) -> ServerTls | None:
    """Put together what was said of encryption; half of it is refused, and not taken for none."""
    if not (use_ssl or is_mutual):
        if certificate or key or roots:
            raise InvalidRequest(f"A certificate is given, but no encryption: add --{protocol}-use-ssl.")
        return None
    if certificate is None or key is None:
        raise InvalidRequest(
            f"--{protocol}-use-ssl needs --{protocol}-server-cert and --{protocol}-server-key."
        )
    if is_mutual != (roots is not None):
        raise InvalidRequest(f"--{protocol}-use-ssl-mutual and --{protocol}-root-cert belong together.")
    return ServerTls(certificate, key, roots)


Version = Annotated[
    bool,
    typer.Option("--version", callback=show_version, is_eager=True, help="Print the version and leave."),
]
Revision = Annotated[
    str | None,
    typer.Option(rich_help_panel=MODEL_PANEL, metavar="REVISION", help="Commit or tag of a hub model."),
]
Device = Annotated[
    str,
    typer.Option(
        rich_help_panel=MODEL_PANEL, metavar="DEVICE", help="Where the model runs: cpu, cuda, cuda:1 ..."
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        min=1,
        rich_help_panel=MODEL_PANEL,
        metavar="N",
        help="CPU threads of a forward pass; default: torch's.",
    ),
]
Cores = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=MODEL_PANEL,
        metavar="CORES",
        help="Run on these CPU cores only, e.g. 0,1 or 0-3; default: all.",
    ),
]
Host = Annotated[
    str, typer.Option(rich_help_panel=SERVING_PANEL, metavar="HOST", help="Address to listen on.")
]
Port = Annotated[
    int,
    typer.Option(
        min=0,
        max=65_535,
        rich_help_panel=SERVING_PANEL,
        metavar="PORT",
        help="Port to listen on; 0 takes a free one.",
    ),
]
Insecure = Annotated[
    bool,
    typer.Option(
        "--insecure",
        rich_help_panel=SERVING_PANEL,
        help="Allow a host that other machines reach, without encryption or tokens; "
        "only TLS detects bytes that the network corrupts.",
    ),
]
# Encryption is spelt as Triton's server spells it.
GrpcUseSsl = Annotated[
    bool,
    typer.Option("--grpc-use-ssl", rich_help_panel=TRUST_PANEL, help="Encrypt every connection."),
]
GrpcUseSslMutual = Annotated[
    bool,
    typer.Option(
        "--grpc-use-ssl-mutual", rich_help_panel=TRUST_PANEL, help="Ask clients for certificates as well."
    ),
]
# Of gRPC and of HTTP: the parameter's name is the flag's.
ServerCert = Annotated[
    Path | None,
    typer.Option(rich_help_panel=TRUST_PANEL, metavar="FILE", help="The server's certificate, PEM."),
]
ServerKey = Annotated[
    Path | None,
    typer.Option(rich_help_panel=TRUST_PANEL, metavar="FILE", help="Its key, PEM."),
]
RootCert = Annotated[
    Path | None,
    typer.Option(
        rich_help_panel=TRUST_PANEL,
        metavar="FILE",
        help="Who must have signed the clients' certificates, PEM.",
    ),
]
TokensFile = Annotated[
    Path | None,
    typer.Option(
        envvar="SPECWHISPER_TOKENS_FILE",
        show_envvar=True,
        rich_help_panel=TRUST_PANEL,
        metavar="FILE",
        help="Who may call: lines of NAME TOKEN, or $SPECWHISPER_TOKENS has them; others are turned away.",
    ),
]
IdleTimeout = Annotated[
    float,
    typer.Option(
        rich_help_panel=SERVING_PANEL,
        metavar="SECONDS",
        help="Seconds a caller may send nothing, or take no answer, until its stream ends.",
    ),
]
SessionTimeout = Annotated[
    float,
    typer.Option(rich_help_panel=SERVING_PANEL, metavar="SECONDS", help="Seconds a session may last."),
]
MaxSessionsPerToken = Annotated[
    int | None,
    typer.Option(
        min=1,
        rich_help_panel=TRUST_PANEL,
        metavar="N",
        help="Most sessions at once of one name in --tokens-file.",
    ),
]
DrainTimeout = Annotated[
    float,
    typer.Option(
        min=0,
        rich_help_panel=SERVING_PANEL,
        metavar="SECONDS",
        help="Seconds that open sessions may go on after SIGTERM.",
    ),
]
MetricsPort = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=65_535,
        rich_help_panel=SEEING_PANEL,
        metavar="PORT",
        help="Serve Prometheus metrics on a port of their own; 0 takes a free one.",
    ),
]
MetricsHost = Annotated[
    str,
    typer.Option(
        rich_help_panel=SEEING_PANEL,
        metavar="HOST",
        help="Address for them; another one wants what --host does.",
    ),
]
LogFormatOption = Annotated[
    LogFormat,
    typer.Option(
        rich_help_panel=SEEING_PANEL,
        metavar="FORMAT",
        help="auto, text or json; auto is text on a terminal and JSON elsewhere.",
    ),
]
LogLevelOption = Annotated[
    LogLevel,
    typer.Option(
        rich_help_panel=SEEING_PANEL,
        metavar="LEVEL",
        help="Least severe messages to log: debug, info, warning or error.",
    ),
]
