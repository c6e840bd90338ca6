"""Which docker command builds, and what a failed build says. The builds themselves are in test_images_engine.py."""

import os
import stat

import pytest

from recapture.base.errors import EnvironmentUnfitError, RecaptureError, UsageError
from recapture.images import build
from recapture.images.build import BuildOptions, build_image, docker_command
from recapture.machine.pins import find_image

IMAGE = find_image("torch2.6.0-cu124")


def install_docker(folder, script):
    """Put an executable called docker into a folder of its own and return that folder."""
    folder.mkdir()
    path = folder / "docker"
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(folder)


def failing(output, status=1):
    """Return a docker command whose BuildKit works and whose builds print something and fail."""
    return f'case "$*" in *buildx*|*inspect*) exit 0;; esac\necho "{output}" >&2\nexit {status}'


WITHOUT_BUILDX = 'case "$1" in --version) echo "Docker version 28.2.2, build e6534b4";; *) exit 1;; esac'
BUILT_IN = 'case "$1" in --version) echo "Docker version 20.10.24+dfsg1, build 297e128";; *) exit 1;; esac'


def test_without_a_docker_command_nothing_can_be_built(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentUnfitError, match="docker command is not on PATH"):
        docker_command()


def test_a_docker_command_without_buildkit_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", install_docker(tmp_path / "new", WITHOUT_BUILDX))
    with pytest.raises(EnvironmentUnfitError, match="docker-buildx-plugin"):
        docker_command()


def test_a_docker_command_without_buildkit_is_passed_over_for_one_further_down_the_path(tmp_path, monkeypatch):
    first = install_docker(tmp_path / "new", WITHOUT_BUILDX)
    second = install_docker(tmp_path / "old", BUILT_IN)
    monkeypatch.setenv("PATH", os.pathsep.join([first, second]))
    assert docker_command() == f"{second}/docker"


@pytest.mark.parametrize(
    ("output", "meaning"),
    [
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "disk is full"),
        ("ERROR: Cannot connect to the Docker daemon at unix:///var/run/docker.sock.", "no container engine answers"),
        ("got permission denied while trying to connect to the Docker daemon socket", "group docker"),
        ("SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed", "--ca"),
        ("failed to do request: Head 'https://registry/v2/python': lookup registry: no such host", "--base"),
        ("Failed to establish a new connection: [Errno -3] Temporary failure in name resolution", "--network host"),
    ],
)
def test_a_build_that_the_machine_cannot_do_says_so_on_one_line(tmp_path, monkeypatch, output, meaning):
    folder = install_docker(tmp_path / "bin", failing(output))
    monkeypatch.setenv("PATH", os.pathsep.join([folder, os.environ["PATH"]]))
    with pytest.raises(EnvironmentUnfitError, match=meaning) as caught:
        build_image(IMAGE, BuildOptions(), lambda line: None)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("torch2.6.0-cu124: ")


def test_any_other_failure_ends_with_what_the_failing_tool_said(tmp_path, monkeypatch):
    output = (
        "#8 0.5 ERROR: THESE PACKAGES DO NOT MATCH THE HASHES\n"
        "error: failed to solve: executor failed running [/bin/sh -c pip install]: exit code: 1"
    )
    folder = install_docker(tmp_path / "bin", failing(output))
    monkeypatch.setenv("PATH", os.pathsep.join([folder, os.environ["PATH"]]))
    shown_lines = []
    with pytest.raises(RecaptureError, match="was not built: ERROR: THESE PACKAGES DO NOT MATCH THE HASHES") as caught:
        build_image(IMAGE, BuildOptions(), shown_lines.append)
    assert caught.value.exit_status == 1
    assert shown_lines == output.splitlines()


def test_a_step_that_names_no_error_is_quoted_by_its_last_line(tmp_path, monkeypatch):
    output = "#5 0.3 the base has Python 3.9\n------\nexecutor failed running [/bin/sh -c set -eu]: exit code: 1"
    folder = install_docker(tmp_path / "bin", failing(output))
    monkeypatch.setenv("PATH", os.pathsep.join([folder, os.environ["PATH"]]))
    with pytest.raises(RecaptureError, match=r"was not built: the base has Python 3\.9$"):
        build_image(IMAGE, BuildOptions(), lambda line: None)


def test_outside_a_checkout_nothing_can_be_built(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "docker_directory", lambda: tmp_path / "docker")
    with pytest.raises(UsageError, match="installed from a checkout"):
        build_image(IMAGE, BuildOptions(), lambda line: None)
