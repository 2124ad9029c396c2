"""A clock for tests of the export workers."""

from costlens.core.clock import NS_PER_S


class Hand:
    """Monotonic nanoseconds, moved by hand."""

    def __init__(self) -> None:
        self.now_ns = 5 * NS_PER_S

    def __call__(self) -> int:
        return self.now_ns

    def forward(self, seconds: float) -> None:
        self.now_ns += int(seconds * NS_PER_S)
