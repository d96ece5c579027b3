"""Read servers' metrics as Prometheus does."""

import asyncio
import urllib.request

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def parsed(text: str) -> Samples:
    """Return every sample by its name and labels."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def exported(registry: CollectorRegistry) -> str:
    return generate_latest(registry).decode()


def collected(registry: CollectorRegistry) -> Samples:
    return parsed(exported(registry))


def value(samples: Samples, name: str, **labels: str) -> float:
    """Return a sample's value."""
    return samples[name, tuple(sorted(labels.items()))]


async def scrape(address: str, path: str = "/metrics", **settings) -> tuple[str, str]:
    """Return the text that a server exports, and its media type."""

    def get() -> tuple[str, str]:
        scheme = "https" if "context" in settings else "http"
        headers = settings.pop("headers", {})
        request = urllib.request.Request(f"{scheme}://{address}{path}", headers=headers)
        with urllib.request.urlopen(request, timeout=20, **settings) as reply:
            return reply.read().decode(), reply.headers["Content-Type"]

    return await asyncio.to_thread(get)
