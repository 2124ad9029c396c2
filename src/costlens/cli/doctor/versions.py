"""Do the installed packages fit together? Read from their metadata: nothing is imported for it."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator, Mapping
from importlib import metadata

from costlens.cli.doctor.answer import Answer, ok, problem, warning
from costlens.config import Config

__all__ = ["check_versions"]

_FRAMEWORKS = ("torch", "lightning", "pytorch-lightning")
_TELEMETRY = ("opentelemetry-api", "opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http")
_OTHERS = ("numpy", "fsspec", "pydantic", "nvidia-ml-py")
_LEAST = re.compile(r"([A-Za-z0-9.\-_]+)\s*(?:\[[^\]]*\])?\s*>=\s*([0-9.]+)")
_PLUGINS = {
    **dict.fromkeys(("s3", "s3a"), "s3fs"),
    **dict.fromkeys(("gs", "gcs"), "gcsfs"),
    **dict.fromkeys(("az", "abfs", "abfss"), "adlfs"),
}


def check_versions(config: Config) -> Iterator[Answer]:
    """Yield what is installed, and what does not fit."""
    found = {name: _version(name) for name in (*_FRAMEWORKS, *_TELEMETRY, *_OTHERS)}
    known = {name: version for name, version in found.items() if version is not None}
    own = _version("costlens") or "unknown"
    shown = [f"{name} {known[name]}" for name in _FRAMEWORKS if name in known]
    yield ok(
        ", ".join([f"costlens {own}", f"Python {platform.python_version()}", *shown]),
        {"costlens": own, "python": platform.python_version(), "packages": known},
    )
    if "torch" not in known:
        yield warning(
            "torch is not installed here: nothing can be trained in this environment",
            "pip install 'costlens[torch]', or your own build of torch",
        )
    yield from _too_old(known)
    yield from _do_not_fit(known)
    yield from _missing_plugins(config)


def _too_old(known: Mapping[str, str]) -> Iterator[Answer]:
    """Yield what is older than our own metadata asks for."""
    for requirement in metadata.requires("costlens") or ():
        match = _LEAST.match(requirement)
        # What costlens[bench] compares with is no part of it.
        if match is None or "bench" in requirement:
            continue
        name, least = match[1].lower().replace("_", "-"), match[2]
        if name in known and _numbers(known[name]) < _numbers(least):
            yield problem(
                f"{name} {known[name]} is older than the {least} that costlens needs",
                f"pip install '{name}>={least}'",
            )


def _do_not_fit(known: Mapping[str, str]) -> Iterator[Answer]:
    telemetry = {name: known[name] for name in _TELEMETRY if name in known}
    if len({*telemetry.values()}) > 1:
        listed = ", ".join(f"{name} {version}" for name, version in telemetry.items())
        newest = max(telemetry.values(), key=_numbers)
        yield problem(
            f"OpenTelemetry's packages are of several releases: {listed}",
            f"pip install {' '.join(f'{name}=={newest}' for name in telemetry)}",
        )
    torch, numpy = known.get("torch"), known.get("numpy")
    if torch and numpy and _numbers(torch) < (2, 3) and _numbers(numpy) >= (2,):
        yield problem(
            f"torch {torch} was built for NumPy 1 and numpy {numpy} is installed",
            "pip install 'numpy<2', or a newer torch",
        )


def _missing_plugins(config: Config) -> Iterator[Answer]:
    urls = {"COSTLENS_DIR": config.run_dir, "COSTLENS_CHECKPOINT_URL": config.checkpoint_url}
    for variable, url in urls.items():
        scheme = (url or "").partition("://")[0].lower()
        package = _PLUGINS.get(scheme)
        if package is not None and _version(package) is None:
            yield problem(
                f"{variable} names {scheme}://, which needs {package}", f"pip install {package}"
            )


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers, without a trailing 0: 2.0 is 2."""
    numbers = [int(part) for part in re.match(r"[0-9.]*", version)[0].split(".") if part]  # type: ignore[index]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
