"""The command that starts a draft server on this machine."""

from __future__ import annotations

import math
import sys
from dataclasses import MISSING, dataclass

from specwhisper.rpc.channels import OPEN, Credentials
from specwhisper.rpc.tokens import TARGET_TOKEN
from specwhisper.validated import text, validate, whole


@dataclass(frozen=True, slots=True)
class Pair:
    """A remote target and a local draft; the fields are options of the draft server."""

    target: str = text(MISSING, "Address of the target server.", "HOST:PORT")
    draft_model: str = text("demo-draft-tiny", "Draft model: a name, a hub id, a folder or a file.", "MODEL")
    device: str = text("cpu", "Device of the draft model.", "DEVICE")
    dtype: str = text("float32", "Precision of the draft model.", "TYPE")
    threads: int | None = whole(
        None, 1, math.inf, "CPU threads of the draft model. Default: as many as cores."
    )
    credentials: Credentials = OPEN

    def __post_init__(self) -> None:
        validate(self)

    @property
    def command(self) -> list[str]:
        """Return the command that starts the draft server."""
        arguments = ["--target", self.target, "--draft-model", self.draft_model, "--device", self.device]
        arguments += ["--dtype", self.dtype, "--port", "0", "--log-format", "json"]
        arguments += ["--threads", str(self.threads)] if self.threads else []
        if (tls := self.credentials.tls) is not None:
            arguments += ["--target-use-ssl"]
            for flag, value in (
                ("root-cert", tls.roots),
                ("client-cert", tls.certificate),
                ("client-key", tls.key),
                ("server-name", tls.server_name),
            ):
                arguments += [f"--target-{flag}", str(value)] if value is not None else []
        return [sys.executable, "-m", "specwhisper_draft_server", *arguments]

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables to add to its environment."""
        token = self.credentials.token
        return {} if token is None else {TARGET_TOKEN: token}
