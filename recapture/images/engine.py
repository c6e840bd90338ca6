"""Reaching a container engine through the Docker SDK, and the one-line errors for when it cannot be reached."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Any

from recapture.errors import EnvironmentUnfitError, UsageError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["connect", "engine_lost", "is_local"]

_TIMEOUT = 60


@contextlib.contextmanager
def connect(host: str | None = None, context: str | None = None) -> Iterator[Any]:
    """Give a docker.DockerClient whose engine answers, and close it afterwards.

    `host` is an engine's address (``ssh://user@machine``, ``tcp://…``, ``unix://…``), `context` a Docker context; with
    neither, DOCKER_HOST or the current context decides, as for the docker command. Raises EnvironmentUnfitError when
    the SDK is not installed or no engine answers there, UsageError for an unknown context or a malformed address.
    """
    try:
        import docker.errors
    except ImportError:
        raise EnvironmentUnfitError("the Docker SDK is not installed: pip install 'recapture[images]'") from None

    where = _address(host, context)
    try:
        # The system's ssh, so that its configuration, agent and known hosts count.
        client = (
            docker.DockerClient(base_url=where, timeout=_TIMEOUT, use_ssh_client=True)
            if where and host
            else docker.DockerClient.from_context(context, timeout=_TIMEOUT, use_ssh_client=True)
            if context
            else docker.from_env(timeout=_TIMEOUT, use_ssh_client=True)
        )
    except (docker.errors.DockerException, ValueError) as error:
        raise _no_engine(where, error) from error
    try:
        try:
            client.ping()
        except Exception as error:  # every transport raises its own
            raise _no_engine(where, error) from error
        yield client
    finally:
        client.close()


def is_local(client: Any) -> bool:
    """Return whether a folder of this machine can be mounted into the engine's containers and written to as its owner.

    Not through ssh or tcp, and not with a rootless engine, which maps user ids.
    """
    rootless = any("rootless" in option for option in client.info().get("SecurityOptions") or [])
    return str(client.api.base_url) == "http+docker://localhost" and not rootless


def engine_lost(client: Any) -> bool:
    """Return whether the engine no longer answers."""
    try:
        return not client.ping()
    except Exception:  # every transport raises its own
        return True


def _address(host: str | None, context: str | None) -> str | None:
    """Return the address of the engine that was asked for, or None where the environment decides."""
    if host and context:
        raise UsageError("--host and --context both name an engine: give one of them")
    if host and "://" not in host:
        raise UsageError(f"not an engine's address: {host!r}; write it as ssh://user@machine or tcp://machine:port")
    if context:
        from docker.context import ContextAPI

        names = [each.name for each in ContextAPI.contexts()]
        if context not in names:
            raise UsageError(f"no Docker context {context!r}{did_you_mean(context, names)} (`docker context ls`)")
        return str(ContextAPI.get_context(context).Host)
    return host


def _no_engine(where: str | None, error: Exception) -> EnvironmentUnfitError:
    place = f"at {where}" if where else "on this machine"
    said = " ".join(str(error).split())
    # The transports nest their errors: the system's own is the one that tells.
    causes = re.findall(r"(?:\[Errno -?\d+\] |Error\(\d+, ')([^'\")]+)", said)
    if "paramiko" in said:
        return EnvironmentUnfitError("an engine over ssh:// needs paramiko: pip install 'docker[ssh]'")
    if "Permission denied" in said and not (where or "").startswith("ssh"):
        return EnvironmentUnfitError(f"no access to the container engine {place}: add yourself to the group docker")
    cause = causes[-1] if causes else said
    return EnvironmentUnfitError(
        f"no container engine answers {place}: start Docker, or name another with --host ({cause})"
    )
