"""Certificates of a test's own authority, as files."""

from pathlib import Path

import trustme

from specwhisper.rpc.tls import ServerTls


def save(authority: trustme.CA, folder: Path, name: str, *hosts: str) -> ServerTls:
    """Write NAME.pem and NAME.key for some hosts, by default this one, and the authority's roots.pem."""
    issued = authority.issue_cert(*(hosts or ("127.0.0.1",)))
    issued.private_key_pem.write_to_path(folder / f"{name}.key")
    issued.cert_chain_pems[0].write_to_path(folder / f"{name}.pem")
    authority.cert_pem.write_to_path(folder / "roots.pem")
    return ServerTls(folder / f"{name}.pem", folder / f"{name}.key")
