"""What watching costs beside what others cost: ``python -m benchmarks.overhead``."""
