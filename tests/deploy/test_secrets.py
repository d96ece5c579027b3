"""deploy/make-secrets keeps what exists, supports rotation, and makes what Prometheus needs."""

import os
import re
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.manifests import COMPOSE, DEPLOY, PROGRAMS, in_compose, read_compose


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def make(folder: Path, *names: str, refusal: str = "") -> None:
    """Make secrets, or check why they are not made."""
    made = run(DEPLOY / "make-secrets", folder, *names)
    assert (made.returncode, refusal in made.stderr) == (int(bool(refusal)), True), made.stderr


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_secrets_stay_and_a_new_token_is_added_to_the_old_one(tmp_path):
    first = tmp_path / "secrets"
    first.mkdir(mode=0o755)
    make(first, "target=more.example")
    before = contents(first)
    (first / "draft" / "target-token").unlink()
    make(first, "target=more.example")
    old, _, new = (first / "target" / "tokens").read_text().splitlines()
    assert (first / "target" / "tokens").read_bytes().startswith(before[first / "target" / "tokens"])
    changed = {path for path, content in contents(first).items() if content != before[path]}
    assert changed == {first / "target" / "tokens", first / "draft" / "target-token"}
    assert new == f"draft {(first / 'draft' / 'target-token').read_text().strip()}" != old
    assert stat.S_IMODE(os.stat(first).st_mode) == 0o700  # although it was there before
    assert stat.S_IMODE(os.stat(first / "authority" / "roots.key").st_mode) == 0o600
    assert not list(first.glob("[!a]*/roots.key"))


def names_in(certificate: Path) -> set[str]:
    shown = run("openssl", "x509", "-in", certificate, "-noout", "-ext", "subjectAltName").stdout
    return {name.strip().partition(":")[2] for name in shown.splitlines()[1].split(",")}


def test_a_certificate_names_its_own_role_only_and_is_deleted_before_it_names_more(tmp_path):
    folder = tmp_path / "secrets"
    there = ("target=target-0.target", "target=10.0.0.1", "gateway=asr.example", "gateway=2001:db8::1")
    make(folder, *there)
    here = {"localhost", "127.0.0.1", "0:0:0:0:0:0:0:1"}
    assert {role: names_in(folder / role / "server.pem") - here for role in PROGRAMS} == {
        "target": {"target", "target-0.target", "10.0.0.1"},
        "draft": {"draft"},
        "gateway": {"gateway", "asr.example", "2001:DB8:0:0:0:0:0:1"},
    }
    assert all(here < names_in(folder / role / "server.pem") for role in PROGRAMS)
    before = contents(folder)
    make(folder, *there)
    for name in ("target-1.target", "10.0.0.2", "2001:db8::2"):
        refusal = f"does not name '{name}': delete target/server.pem first"
        make(folder, *there, f"target={name}", refusal=refusal)
    assert contents(folder) == before
    (folder / "target" / "server.pem").unlink()
    make(folder, *there, "target=target-1.target")
    assert "target-1.target" in names_in(folder / "target" / "server.pem")


@pytest.mark.parametrize("name", ["asr.example", "client=asr.example", "target=", "target=a,DNS:draft"])
def test_a_name_without_its_role_is_refused_before_anything_is_made(tmp_path, name):
    make(tmp_path / "secrets", name, refusal=f"'{name}'")
    assert not (tmp_path / "secrets").exists()


def test_a_new_authority_replaces_the_old_one_without_downtime(tmp_path):
    folder = tmp_path / "secrets"
    roots, certificate = folder / "draft" / "roots.pem", folder / "target" / "server.pem"

    def made() -> str:
        make(folder)
        return certificate.read_text()

    def is_trusted(pem: str) -> bool:
        shown = tmp_path / "shown.pem"
        shown.write_text(pem)
        return run("openssl", "verify", "-CAfile", roots, shown).returncode == 0

    old = made()
    authority = folder / "authority" / "roots.pem"
    authority.unlink()
    assert made() == old  # only a new authority, which no server trusts yet
    assert roots.read_bytes() != authority.read_bytes()
    assert is_trusted(old)
    with roots.open("ab") as file:
        file.write(authority.read_bytes())
    certificate.unlink()
    new = made()
    assert is_trusted(old)
    assert is_trusted(new)
    roots.unlink()
    assert made() == new
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


def test_prometheus_finds_the_servers_of_compose_and_they_know_its_token(secrets):
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
        token = secrets / "prometheus" / Path(job["authorization"]["credentials_file"]).name
        known = (secrets / server.role / "tokens").read_text().splitlines()
        assert f"prometheus {token.read_text().strip()}" in known
