"""The front doors: ``nox -s cpu-suite``, ``gpu-suite``, ``tests`` and ``lint``; arguments after ``--`` pass through.

``--image NAME`` among them chooses the pinned packages of another image of docker/images.toml for a suite.
``nox --no-venv -s gpu-suite`` installs nothing and runs in the Python that runs nox: for machines without a network.
"""

from __future__ import annotations

import platform
import shutil
import sys
from pathlib import Path

import nox

nox.needs_version = ">=2024.4.15"
nox.options.sessions = ["lint", "tests"]
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.reuse_existing_virtualenvs = True

ROOT = Path(__file__).parent
# Seconds that a run may take after Ctrl-C or SIGTERM to end its cells and close its files.
CLOSING_SECONDS = 30.0
DEFAULT_IMAGE = "torch2.11.0-cu130"
PYPROJECT = nox.project.load_toml(ROOT / "pyproject.toml")


def install_image(session: nox.Session, image: str, *extra: str) -> None:
    """Install what an image pins, to the byte where this Python is the image's; recapture itself comes from here."""
    images = nox.project.load_toml(ROOT / "docker" / "images.toml")["images"]
    if image not in images:
        session.error(f"unknown image {image!r}; docker/images.toml has {', '.join(images)}")
    pins = images[image]
    python = platform.python_version().rsplit(".", 1)[0]
    if python == pins["python"]:
        session.install("--require-hashes", "-r", str(ROOT / "docker" / "locks" / f"{image}.txt"))
    else:
        session.warn(f"{image} pins Python {pins['python']}, this is {python}: results will be filed as bare-{image}")
        session.install(
            f"torch=={pins['torch']}", f"torchvision=={pins['torchvision']}", "numpy", "scipy", "setuptools"
        )
    session.install("-e", ".", *extra)


def image_mark(session: nox.Session) -> Path:
    """Return the file in which an environment says which image it was made for."""
    return Path(session.virtualenv.location, "recapture-image")


def make_room_for(session: nox.Session, image: str) -> None:
    """Make the environment anew where it holds another image.

    Wheels of two CUDA releases share files: what was installed for one would be overwritten by the other, and the one
    would be found complete afterwards.
    """
    mark = image_mark(session)
    used = any(mark.parent.glob("lib/python*/site-packages/torch"))
    if used and (not mark.is_file() or mark.read_text() != image):
        session.log(f"the environment is made anew for {image}")
        session.virtualenv.reuse_existing = False  # type: ignore[attr-defined]
        session.virtualenv.create()


def run_suite(session: nox.Session, *options: str) -> None:
    """Run the main job in the environment of an image."""
    arguments = list(session.posargs)
    image = DEFAULT_IMAGE
    arguments = [part for one in arguments for part in (one.split("=", 1) if one.startswith("--image=") else [one])]
    if "--image" in arguments:
        at = arguments.index("--image")
        image = (arguments[at + 1 : at + 2] or [""])[0]
        del arguments[at : at + 2]
        if session.venv_backend == "none":
            session.error("--image with --no-venv: without an environment of its own nothing is installed")
    command: tuple[str, ...]
    if session.venv_backend == "none":
        command = (sys.executable, "-m", "recapture")
    else:
        make_room_for(session, image)
        install_image(session, image)
        image_mark(session).write_text(image)
        command = ("recapture",)
    try:
        session.run(
            *command, "run", *options, *arguments, interrupt_timeout=CLOSING_SECONDS, terminate_timeout=CLOSING_SECONDS
        )
    except nox.command.CommandFailed as failed:
        # nox ends with 1 whatever failed; recapture's own status says what to do (3: this machine cannot run it).
        sys.exit(getattr(failed, "return_code", None) or 1)


@nox.session(name="cpu-suite")
def cpu_suite(session: nox.Session) -> None:
    """Run every suite through every compiler on the CPU."""
    run_suite(session, "--device", "cpu")


@nox.session(name="gpu-suite")
def gpu_suite(session: nox.Session) -> None:
    """Run every suite through every compiler on the CUDA device."""
    run_suite(session, "--device", "cuda")


@nox.session
def tests(session: nox.Session) -> None:
    """Run the tests; ``-- -m slow`` or ``-- -m engine`` runs those that take longer."""
    install_image(session, DEFAULT_IMAGE, "docker[ssh]>=7.1", *nox.project.dependency_groups(PYPROJECT, "dev"))
    session.run("pytest", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and types; nothing here needs torch."""
    session.install("-e", ".[images]", "nox", *nox.project.dependency_groups(PYPROJECT, "dev"))
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")


@nox.session
def docs(session: nox.Session) -> None:
    """Build the site into build/docs; a warning, a broken link and a page that loads something remote are errors."""
    session.install("-e", ".", *nox.project.dependency_groups(PYPROJECT, "docs"))
    session.run("sphinx-build", "--fail-on-warning", "--keep-going", "--fresh-env", "--quiet", "docs", "build/docs")
    session.run("python", "docs/check_site.py", "build/docs")


@nox.session(venv_backend="none")
def clean(session: nox.Session) -> None:
    """Remove the environments of the other sessions: five to seven gigabytes each."""
    shutil.rmtree(ROOT / ".nox", ignore_errors=True)
    session.log("removed .nox")
