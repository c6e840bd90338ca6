"""Connects to a container engine through the Docker SDK, with one-line errors if it cannot be reached."""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recapture.base.errors import EnvironmentUnfitError, UsageError, did_you_mean
from recapture.base.files import read_regular
from recapture.base.option_fields import option

if TYPE_CHECKING:
    from collections.abc import Iterator

_TIMEOUT = 60
"""Seconds that one request to an engine may take."""

SETTLE_SECONDS = 5.0
"""Seconds to wait for an engine that seems to shut down."""

_POLL_SECONDS = 0.3
"""Seconds between two questions whether the engine answers."""

LARGEST_CONTEXT = 1 << 20
"""Bytes of the largest file of a Docker context that is read; the docker command writes less than one KB."""


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """The container engine to use: `host` is an address (``ssh://user@machine``, ``tcp://…``, ``unix://…``).

    Without host and context, DOCKER_HOST or the current context is used, as by the docker command.
    """

    host: str | None = option(
        "--host", default=None, metavar="URL", help="Another engine: ssh://user@machine, tcp://machine:port."
    )
    context: str | None = option("--context", default=None, metavar="NAME", help="Another engine: a Docker context.")


LOCAL = EngineOptions()
"""Options for the engine that the docker command would use."""


@contextlib.contextmanager
def connect(engine: EngineOptions = LOCAL) -> Iterator[Any]:
    """Yield a docker.DockerClient whose engine answers, and close it afterwards.

    Raises EnvironmentUnfitError if the SDK is not installed or no engine answers, and UsageError for an unknown context
    or a malformed address.
    """
    host, context = engine.host, engine.context
    try:
        import docker.errors
    except ImportError:
        raise EnvironmentUnfitError("the Docker SDK is not installed: pip install 'recapture[images]'") from None

    if host and context:
        raise UsageError("--host and --context both name an engine: give one of them")
    if host and "://" not in host:
        raise UsageError(f"not an engine's address: {host!r}; write it as ssh://user@machine or tcp://machine:port")
    if not host and not os.environ.get("DOCKER_HOST"):
        context = context or os.environ.get("DOCKER_CONTEXT")
    # The system's ssh, so that its configuration, agent and known hosts are used.
    settings: dict[str, Any] = {"timeout": _TIMEOUT, "use_ssh_client": True}
    if host:
        settings["base_url"] = host
    elif context:
        settings |= _context(context)
    where = settings.get("base_url")
    try:
        client = docker.DockerClient(**settings) if where else docker.from_env(**settings)
    except (docker.errors.DockerException, ValueError) as error:
        raise _no_engine(where, error) from error
    try:
        try:
            client.ping()
        except Exception as error:  # each transport has its own exceptions
            raise _no_engine(where, error) from error
        yield client
    finally:
        client.close()


def is_local(client: Any) -> bool:
    """Whether the engine's containers can mount a folder of this machine and write to it as its owner.

    This is not possible through ssh or tcp, or if the engine maps user ids (rootless, or with userns-remap).
    """
    options = client.info().get("SecurityOptions") or []
    maps_users = any(word in option for option in options for word in ("rootless", "name=userns"))
    return str(client.api.base_url) == "http+docker://localhost" and not maps_users


def engine_lost(client: Any, within: float = 0.0) -> bool:
    """Whether the engine no longer answers, or stops answering within `within` seconds.

    An engine that shuts down first kills its containers and refuses new connections; open ones go on for a moment.
    """
    until = time.monotonic() + within
    while True:
        try:
            if not client.ping():
                return True
        except Exception:  # each transport has its own exceptions
            return True
        if time.monotonic() >= until:
            return False
        time.sleep(_POLL_SECONDS)


@contextlib.contextmanager
def reporting(client: Any, lost: str) -> Iterator[None]:
    """Turn errors of the SDK and its transports into one line: `lost` if the engine is gone, else its message."""
    import docker.errors
    import requests  # type: ignore[import-untyped,import-not-found,unused-ignore]
    import urllib3  # type: ignore[import-not-found,unused-ignore]

    try:
        yield
    except (
        docker.errors.DockerException,
        requests.RequestException,
        urllib3.exceptions.HTTPError,
        ConnectionError,
    ) as error:
        answered = isinstance(error, docker.errors.APIError)
        if engine_lost(client, within=0.0 if answered else SETTLE_SECONDS):
            raise EnvironmentUnfitError(lost) from error
        message = " ".join(str(getattr(error, "explanation", None) or error).split())
        raise EnvironmentUnfitError(f"the container engine refused: {message}") from error


def _context(name: str) -> dict[str, Any]:
    """Return the client settings of a Docker context, read from the docker command's files.

    The SDK's own reader finds no context without a config.json, and would then use the local engine.
    """
    from docker.tls import TLSConfig

    folder = Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker", "contexts")
    endpoints: dict[str, tuple[str, Path]] = {"default": ("unix:///var/run/docker.sock", folder)}
    for path in folder.glob("meta/*/meta.json"):
        try:
            stored = json.loads(read_regular(path, most=LARGEST_CONTEXT))
            called, address = stored["Name"], stored["Endpoints"]["docker"]["Host"]
        except (UsageError, ValueError, KeyError, TypeError, RecursionError):  # damaged, or another kind of endpoint
            continue
        if isinstance(called, str) and isinstance(address, str) and address:
            endpoints[called] = (address, folder / "tls" / path.parent.name / "docker")
    if name not in endpoints:
        raise UsageError(f"no Docker context {name!r}{did_you_mean(name, endpoints)} (see `docker context ls`)")
    address, keys = endpoints[name]
    ca, certificate, key = (str(keys / file) for file in ("ca.pem", "cert.pem", "key.pem"))
    if not Path(ca).is_file():
        return {"base_url": address}
    pair = (certificate, key) if Path(certificate).is_file() else None
    return {"base_url": address, "tls": TLSConfig(ca_cert=ca, client_cert=pair, verify=True)}


def _no_engine(where: str | None, error: Exception) -> EnvironmentUnfitError:
    place = f"at {where}" if where else "on this machine"
    message = " ".join(str(error).split())
    # Transports nest their errors: the innermost, from the operating system, is the most informative.
    causes = re.findall(r"(?:\[Errno -?\d+\] |Error\(\d+, ')([^'\")]+)", message)
    if "paramiko" in message:
        return EnvironmentUnfitError("an engine over ssh:// needs paramiko: pip install 'docker[ssh]'")
    if "Permission denied" in message and not (where or "").startswith("ssh"):
        return EnvironmentUnfitError(f"no access to the container engine {place}: add yourself to the group docker")
    cause = causes[-1] if causes else message
    return EnvironmentUnfitError(
        f"no container engine answers {place}: start Docker, or name another with --host ({cause})"
    )
