"""A clock for tests of time limits."""


class Clock:
    """A clock that only the test advances, in seconds."""

    def __init__(self, now_s: float = 0.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s
