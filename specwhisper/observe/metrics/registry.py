"""Metrics whose names share a prefix."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info

from specwhisper import __version__


class Registry:
    """Makes metrics, in its own registry or in a shared one.

    Parameters
    ----------
    prefix : prefix of every name.
    collected : the registry; by default a new one.
    """

    def __init__(self, prefix: str, collected: CollectorRegistry | None = None) -> None:
        self._prefix = prefix
        self.collected = collected or CollectorRegistry()

    def counter(self, name: str, meaning: str, *labels: str) -> Counter:
        return Counter(f"{self._prefix}_{name}", meaning, labels, registry=self.collected)

    def gauge(self, name: str, meaning: str, read: Callable[[], float] | None = None) -> Gauge:
        """Make a gauge that is set, or that calls ``read`` at each scrape, in any thread."""
        gauge = Gauge(f"{self._prefix}_{name}", meaning, registry=self.collected)
        if read is not None:
            gauge.set_function(read)
        return gauge

    def histogram(self, name: str, meaning: str, buckets: Sequence[float], *labels: str) -> Histogram:
        return Histogram(f"{self._prefix}_{name}", meaning, labels, registry=self.collected, buckets=buckets)

    def export_build(self, model: str, dtype: str, device: str) -> None:
        build = Info(
            f"{self._prefix}_build",
            "Version and model of this server.",
            registry=self.collected,
        )
        build.info({"version": __version__, "model": model, "dtype": dtype, "device": device})
