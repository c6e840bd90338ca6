"""``nox -s cpu-suite``, ``gpu-suite``, ``matrix``, ``tests``, ``quick``, ``lint``, ``docs``, ``clean``: a checkout.

Arguments after ``--`` pass through to the command that a session runs.

``--image NAME`` among those of a suite runs it in other images of docker/images.toml, in environments that
recapture makes.
``nox --no-venv -s gpu-suite`` installs nothing and runs in the Python that runs nox, on machines without a network.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import nox

nox.needs_version = ">=2024.4.15"
nox.options.sessions = ["lint", "tests"]
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.reuse_existing_virtualenvs = True

ROOT = Path(__file__).parent
# Seconds that a run may take after Ctrl-C or SIGTERM to end its cells and close its files.
CLOSING_SECONDS = 60.0
DEFAULT_IMAGE = "torch2.11.0-cu130"
# Three workers: the smallest machines of CI have two cores, and tests often wait for a process or a deadline. A file's
# tests share what is expensive to make. Files run in the order of collection, in which those that take long come first
# (tests/marking.py).
SPREAD = ("-n", "3", "--dist", "loadfile", "--no-loadscope-reorder")
PYPROJECT = nox.project.load_toml(ROOT / "pyproject.toml")


def install_image(session: nox.Session, *extra: str) -> None:
    """Install the default image's packages, by hash if this Python is the image's, and recapture from this checkout."""
    make_room(session)
    pins = nox.project.load_toml(ROOT / "docker" / "images.toml")["images"][DEFAULT_IMAGE]
    python = platform.python_version().rsplit(".", 1)[0]
    if python == pins["python"]:
        session.install("--require-hashes", "-r", str(ROOT / "docker" / "locks" / f"{DEFAULT_IMAGE}.txt"))
    else:
        session.warn(f"{DEFAULT_IMAGE} pins Python {pins['python']}, this is {python}: results are filed under bare-")
        session.install(
            f"torch=={pins['torch']}", f"torchvision=={pins['torchvision']}", "numpy", "scipy", "setuptools"
        )
    # With what the documents use besides: pytest, and uv for `recapture check --across`.
    session.install("-e", ".[check]", *extra)
    # Last, so that an installation that was interrupted is made again.
    image_mark(session).write_text(DEFAULT_IMAGE)


def image_mark(session: nox.Session) -> Path:
    """Return the file with the name of the image that an environment was made for."""
    return Path(session.virtualenv.location, "recapture-image")


def make_room(session: nox.Session) -> None:
    """Create the environment again if it contains another image than the default one.

    Wheels of two CUDA releases share files: installing an image over another overwrites files of the first, which would
    still look complete.
    """
    mark = image_mark(session)
    used = any(mark.parent.glob("lib/python*/site-packages/torch"))
    if used and (not mark.is_file() or mark.read_text() != DEFAULT_IMAGE):
        session.log(f"the environment is created again for {DEFAULT_IMAGE}")
        # nox would otherwise keep the folder and install over it.
        session.virtualenv.reuse_existing = False  # type: ignore[attr-defined]
        session.virtualenv.create()


def run_suite(session: nox.Session, *options: str) -> None:
    """Run the main job in the environment of the default image, or in those of the images that ``--image`` names."""
    command: tuple[str, ...] = ("recapture",)
    if session.venv_backend == "none":
        command = (sys.executable, "-m", "recapture")
    elif names("--image", (*options, *session.posargs)):
        session.install("-e", ".[images]")  # recapture itself makes the images' environments
    else:
        install_image(session)
    try:
        session.run(
            *command,
            "run",
            *options,
            *session.posargs,
            interrupt_timeout=CLOSING_SECONDS,
            terminate_timeout=CLOSING_SECONDS,
        )
    except nox.command.CommandFailed as failed:
        # nox exits with 1 for any failure; recapture's own status is more specific (3: this machine cannot run it).
        sys.exit(getattr(failed, "return_code", None) or 1)


def names(option: str, arguments: Sequence[str]) -> bool:
    """Whether the arguments of ``recapture run`` contain an option."""
    return any(argument.partition("=")[0] == option for argument in arguments)


@nox.session(name="cpu-suite")
def cpu_suite(session: nox.Session) -> None:
    """Run every suite through every compiler on the CPU."""
    run_suite(session, "--device", "cpu")


@nox.session(name="gpu-suite")
def gpu_suite(session: nox.Session) -> None:
    """Run every suite through every compiler on the CUDA device."""
    run_suite(session, "--device", "cuda")


@nox.session
def matrix(session: nox.Session) -> None:
    """Run every suite in every image, one image after the other; run again, it continues where it was.

    At most two environments are on disk at a time; ``-- --keep N`` changes that. ``-- --image NAME,NAME`` runs these
    images alone.
    """
    images = () if names("--image", session.posargs) else ("--image", "all")
    keep = () if names("--via", session.posargs) else ("--keep", "2")
    run_suite(session, *images, *keep, "--resume")


def install_tests(session: nox.Session) -> None:
    """Install the default image and the tests' other dependencies."""
    install_image(session, "docker[ssh]>=7.1", *nox.project.dependency_groups(PYPROJECT, "dev"))


def test_environment(session: nox.Session) -> dict[str, str]:
    """Return the variables under which tests run.

    Each process uses one thread, because several run in parallel. All share one cache of compiled code, so that each
    kernel is compiled once.
    """
    cache = (session.cache_dir / "inductor").resolve()  # tests change their directory
    return {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_CACHE_DIR": str(cache), "PYTHONUNBUFFERED": "1"}


@nox.session
def tests(session: nox.Session) -> None:
    """Run the default tests, three at a time; ``-- -m slow``, ``engine`` or ``slurm`` runs others.

    Arguments go to one run of pytest. Without any, tests that measure time run alone, after the others.
    RECAPTURE_COVERAGE=1 also reports coverage, which slows what runs inside the tests' own processes by two thirds.
    """
    install_tests(session)
    environment = test_environment(session)
    if session.posargs:
        session.run("pytest", *session.posargs, env=environment)
        return
    measured = os.environ.get("RECAPTURE_COVERAGE") == "1"
    if measured:
        session.run("coverage", "erase")
    coverage, added = (("--cov", "--cov-report="), ("--cov-append",)) if measured else ((), ())
    both = "not slow and not engine and not slurm and not fuzz"
    session.run("pytest", *SPREAD, *coverage, "--durations=15", "-m", f"{both} and not serial", env=environment)
    serial = [str(path) for path in sorted(Path("tests").glob("test_*.py")) if "mark.serial" in path.read_text("utf-8")]
    session.run("pytest", *coverage, *added, "-m", f"{both} and serial", *serial, env=environment)
    if measured:
        report_coverage(session)


@nox.session(venv_backend="none")
def quick(session: nox.Session) -> None:
    """Run the tests that need neither a server nor a compiler, in the environment of ``tests``: under a minute."""
    session.notify("tests", [*SPREAD, "-m", "quick", "--durations=5", *session.posargs])


def report_coverage(session: nox.Session) -> None:
    """Print the share of lines that the tests' own processes ran, for each package and in all."""
    file = session.cache_dir / "coverage.json"
    if not session.run("coverage", "json", "--quiet", "-o", str(file)):  # with --install-only nothing runs
        return
    report = json.loads(file.read_text(encoding="utf-8"))
    packages: dict[str, list[int]] = {}
    for name, file_report in report["files"].items():
        parts = Path(name).parts
        package = parts[1] if len(parts) > 2 else "(top)"
        lines = packages.setdefault(package, [0, 0])
        lines[0] += file_report["summary"]["covered_lines"]
        lines[1] += file_report["summary"]["num_statements"]
    for package, (covered, statements) in sorted(packages.items()):
        session.log(f"coverage of recapture/{package}: {covered / max(1, statements):.0%} of {statements} statements")
    session.log(f"coverage in all: {report['totals']['percent_covered']:.0f} %; what runs in children is not counted")


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, types, the direction of imports and dead code; nothing here needs torch."""
    session.install("-e", ".[images]", "nox", *nox.project.dependency_groups(PYPROJECT, "dev"))
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")
    session.run("mypy", "--config-file", "tests/mypy.ini")
    session.run("lint-imports")
    session.run("vulture")


@nox.session
def docs(session: nox.Session) -> None:
    """Build the site into build/docs; warnings, broken links and pages with remote content are errors."""
    session.install("-e", ".", *nox.project.dependency_groups(PYPROJECT, "docs"))
    session.run("sphinx-build", "--fail-on-warning", "--keep-going", "--fresh-env", "--quiet", "docs", "build/docs")
    session.run("python", "docs/check_site.py", "build/docs")


@nox.session(venv_backend="none")
def clean(session: nox.Session) -> None:
    """Remove the environments of the other sessions: five to seven gigabytes for each session."""
    shutil.rmtree(ROOT / ".nox", ignore_errors=True)
    session.log("removed .nox")
