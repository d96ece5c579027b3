"""deploy/make-secrets keeps what exists, supports rotation, and serves Prometheus."""

import os
import re
import ssl
import stat
import subprocess
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
import yaml
from prometheus_client import CollectorRegistry

from specwhisper.rpc.metrics_server import metrics_page, serving_page
from specwhisper.rpc.tls import ServerTls
from specwhisper.rpc.tokens import read_tokens
from tests.deploy.manifests import COMPOSE, DEPLOY, PROGRAMS, in_compose, read_compose
from tests.rpc.scrapes import scrape


def test_secrets_stay_and_a_new_token_is_added_to_the_old_one(secrets, tmp_path):
    first = tmp_path / "secrets"
    first.mkdir(mode=0o755)
    run = [DEPLOY / "make-secrets", first, "target=more.example"]
    subprocess.run(run, check=True, capture_output=True, timeout=60)
    before = {path: path.read_bytes() for path in first.rglob("*") if path.is_file()}
    subprocess.run(run, check=True, capture_output=True, timeout=60)
    assert {path: path.read_bytes() for path in first.rglob("*") if path.is_file()} == before
    (first / "draft" / "target-token").unlink()
    subprocess.run(run, check=True, capture_output=True, timeout=60)
    old, _, new = (first / "target" / "tokens").read_text().splitlines()
    assert (first / "target" / "tokens").read_bytes().startswith(before[first / "target" / "tokens"])
    assert new == f"draft {(first / 'draft' / 'target-token').read_text().strip()}" != old
    assert stat.S_IMODE(os.stat(first).st_mode) == 0o700  # although it was there before
    assert stat.S_IMODE(os.stat(first / "authority" / "roots.key").st_mode) == 0o600
    assert not list(first.glob("[!a]*/roots.key"))


def names_in(certificate: Path) -> set[str]:
    shown = subprocess.run(
        ["openssl", "x509", "-in", certificate, "-noout", "-ext", "subjectAltName"],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout
    return {name.strip().partition(":")[2] for name in shown.splitlines()[1].split(",")}


def test_a_certificate_names_its_own_role_only(tmp_path):
    folder = tmp_path / "secrets"
    names = ("target=target-0.target", "target=10.0.0.1", "gateway=asr.example", "gateway=2001:db8::1")
    subprocess.run([DEPLOY / "make-secrets", folder, *names], check=True, capture_output=True, timeout=60)
    here = {"localhost", "127.0.0.1", "0:0:0:0:0:0:0:1"}
    assert {role: names_in(folder / role / "server.pem") - here for role in PROGRAMS} == {
        "target": {"target", "target-0.target", "10.0.0.1"},
        "draft": {"draft"},
        "gateway": {"gateway", "asr.example", "2001:DB8:0:0:0:0:0:1"},
    }
    assert all(here < names_in(folder / role / "server.pem") for role in PROGRAMS)


@pytest.mark.parametrize("name", ["asr.example", "client=asr.example", "target=", "target=a,DNS:draft"])
def test_a_name_without_its_role_is_refused_before_anything_is_made(tmp_path, name):
    folder = tmp_path / "secrets"
    result = subprocess.run(
        [DEPLOY / "make-secrets", folder, name], capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 1
    assert f"'{name}'" in result.stderr
    assert not folder.exists()


def test_a_name_that_a_certificate_lacks_is_refused_until_the_certificate_is_deleted(tmp_path):
    folder = tmp_path / "secrets"

    def make(*names: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [DEPLOY / "make-secrets", folder, *names], capture_output=True, text=True, timeout=60
        )

    there = ("target=target-0.target", "target=10.0.0.1", "target=2001:db8::1")
    assert make(*there).returncode == 0
    assert make(*there).returncode == 0
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for name in ("target-1.target", "10.0.0.2", "2001:db8::2"):
        result = make(*there, f"target={name}")
        assert result.returncode == 1
        assert f"does not name '{name}': delete target/server.pem first" in result.stderr
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    (folder / "target" / "server.pem").unlink()
    assert make(*there, "target=target-1.target").returncode == 0
    assert "target-1.target" in names_in(folder / "target" / "server.pem")


def test_a_new_authority_replaces_the_old_one_without_downtime(tmp_path):
    folder = tmp_path / "secrets"
    roots, certificate = folder / "draft" / "roots.pem", folder / "target" / "server.pem"

    def make() -> str:
        subprocess.run([DEPLOY / "make-secrets", folder], check=True, capture_output=True, timeout=60)
        return certificate.read_text()

    def is_trusted(pem: str) -> bool:
        shown = tmp_path / "shown.pem"
        shown.write_text(pem)
        return not subprocess.run(
            ["openssl", "verify", "-CAfile", roots, shown], capture_output=True, timeout=60
        ).returncode

    old = make()
    authority = folder / "authority" / "roots.pem"
    authority.unlink()
    assert make() == old  # only a new authority, which no server trusts yet
    assert roots.read_bytes() != authority.read_bytes()
    assert is_trusted(old)
    with roots.open("ab") as file:
        file.write(authority.read_bytes())
    certificate.unlink()
    new = make()
    assert is_trusted(old)
    assert is_trusted(new)
    roots.unlink()
    assert make() == new
    assert not is_trusted(old)
    assert is_trusted(new)


def jobs_of(name: str) -> list[dict[str, Any]]:
    """Return the jobs of an example for Prometheus, commented ones included."""
    text = (DEPLOY / "observability" / name).read_text()
    return yaml.safe_load(re.sub(r"^  # (?=- job_name|  )", "  ", text, flags=re.MULTILINE))["scrape_configs"]


@pytest.mark.parametrize(
    ("name", "locators"),
    [("prometheus.yml", 1), ("prometheus.kubernetes.yml", 0)],
    ids=["hosts", "kubernetes"],
)
def test_prometheus_uses_encryption_and_a_token_that_it_has(secrets, name, locators):
    jobs = jobs_of(name)
    assert sum("http_sd_configs" in job for job in jobs) == locators
    found = [
        at | {"scheme": at["url"].partition(":")[0]} for job in jobs for at in job.get("http_sd_configs", ())
    ]
    for asked in [*jobs, *found]:
        assert asked["scheme"] == "https"
        for file in (asked["tls_config"]["ca_file"], asked["authorization"]["credentials_file"]):
            assert (secrets / "prometheus" / Path(file).name).is_file()
        role = Path(asked["authorization"]["credentials_file"]).name.removesuffix("-token")
        assert asked["tls_config"]["server_name"] == role
        assert role in names_in(secrets / role / "server.pem")


async def test_prometheus_scrapes_compose_with_the_secrets_made_for_it(secrets):
    example = yaml.safe_load((DEPLOY / "observability" / "prometheus.yml").read_text())
    jobs = {job["job_name"].removeprefix("specwhisper-"): job for job in example["scrape_configs"]}
    assert jobs.keys() == PROGRAMS.keys()
    services = read_compose("compose.yaml")["services"]
    for server in in_compose(*COMPOSE):
        if server.role == "gateway":
            continue
        port = server.flags["metrics_port"]
        assert server.flags["metrics_host"] == "0.0.0.0", server.where
        assert services[server.role]["expose"] == [port], server.where
        job = jobs[server.role]
        assert job["static_configs"] == [{"targets": [f"{server.role}:{port}"]}]
        own, prometheus = secrets / server.role, secrets / "prometheus"
        tls = ServerTls(own / "server.pem", own / "server.key")
        token = (prometheus / Path(job["authorization"]["credentials_file"]).name).read_text().strip()
        assert job["tls_config"]["server_name"] in names_in(own / "server.pem")
        trusted = ssl.create_default_context(cafile=prometheus / Path(job["tls_config"]["ca_file"]).name)
        async with serving_page(
            metrics_page(CollectorRegistry()), "127.0.0.1", 0, tls, read_tokens(own / "tokens")
        ) as address:
            known = {"Authorization": f"Bearer {token}"}
            await scrape(address, context=trusted, headers=known)
            with pytest.raises(HTTPError, match="401"):
                await scrape(address, context=trusted)
