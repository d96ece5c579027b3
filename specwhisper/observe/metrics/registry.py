"""Metrics whose names begin alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info

from specwhisper import __version__


class Registry:
    """Makes metrics, in a registry of its own or in one that others use too.

    Parameters
    ----------
    prefix : what every name begins with.
    collected : by whom; by default by nobody else.
    """

    def __init__(self, prefix: str, collected: CollectorRegistry | None = None) -> None:
        self._prefix = prefix
        self.collected = collected or CollectorRegistry()

    def counter(self, name: str, meaning: str, *labels: str) -> Counter:
        """Make a counter; ``_total`` is put behind its name."""
        return Counter(f"{self._prefix}_{name}", meaning, labels, registry=self.collected)

    def gauge(self, name: str, meaning: str, read: Callable[[], float] | None = None) -> Gauge:
        """Make a gauge, which is set, or read by whoever collects it, in any thread."""
        gauge = Gauge(f"{self._prefix}_{name}", meaning, registry=self.collected)
        if read is not None:
            gauge.set_function(read)
        return gauge

    def histogram(self, name: str, meaning: str, buckets: Sequence[float], *labels: str) -> Histogram:
        """Make a histogram."""
        return Histogram(f"{self._prefix}_{name}", meaning, labels, registry=self.collected, buckets=buckets)

    def tell_build(self, model: str, dtype: str, device: str) -> None:
        """Tell what runs here, by the labels of a metric."""
        build = Info(f"{self._prefix}_build", "What runs here.", registry=self.collected)
        build.info({"version": __version__, "model": model, "dtype": dtype, "device": device})
