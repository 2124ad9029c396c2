"""Where the time and the money of a training run go.

What a user imports stands here and loads on first use, so that `import costlens` stays light.
"""

__all__ = ["__version__"]

_DISTRIBUTION = "costlens"


def __getattr__(name: str) -> object:
    """Return a public name, loaded on first use."""
    if name == "__version__":
        from importlib.metadata import version

        return version(_DISTRIBUTION)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
