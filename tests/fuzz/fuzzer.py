"""``python -m tests.fuzz --inputs 10000 --seed 1 --jobs 2``: mutate files, run what reads them, report what goes wrong.

Every input has a number: its seed. ``--only NUMBER`` repeats one. Exit status 1 where anything was found.
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.fuzz import arguments, commands, corpus, mutations, requirement_files

SECONDS = 10
"""Seconds of CPU time that one command may take, which other processes of the machine cannot lengthen."""

WAITING_SECONDS = 60
"""Seconds that one command may take in all: a command that waits for a pipe uses no CPU time."""

MEMORY = 1 << 30
"""Bytes of address space that an input may use in addition to the process's at the start."""

CHUNK = 25
"""Number of inputs that one process runs before it reports."""

PER_INPUT = 2
"""Number of commands run on each input."""

MODULES = (
    "scipy.stats",
    *(f"recapture.command.{name}" for name in ("images", "main", "report")),
    *(
        f"recapture.report.{name}"
        for name in ("terminal_writer", "html_page", "conformance_report", "terminal_summary")
    ),
    *(f"recapture.run.{name}" for name in ("cell", "result_files")),
    *(f"recapture.tools.check.{name}" for name in ("across", "report")),
    *(f"recapture.tools.compare.{name}" for name in ("diff_command", "history_command")),
    "recapture.tools.explain.script.repro",
    *(f"recapture.tools.fleet.{name}" for name in ("merge_command", "plan_command")),
    *(f"recapture.tools.speed.{name}" for name in ("figures", "report", "results_file")),
    "recapture.tools.upgrade.bisect_command",
)
"""Modules that the commands use."""


def mutate(seed: int, root: Path) -> tuple[str, list[str], list[str] | None]:
    """Damage one file below a folder; return a description, the commands that read it, and their arguments."""
    choose = random.Random(seed)
    files = corpus.files(root)
    [path] = choose.choices(files, [corpus.weight(run_one) for run_one in files])
    data = path.read_bytes()
    way = choose.random()
    if path.parent == root and path.suffix == ".txt" and way < 0.6:
        requirement_files.write(choose, root)
        return "requirements", ["requirements"], None
    if not data or 0.82 <= way < 0.9:  # a lock is empty
        kind = "replaced"
        mutations.replace_file(choose, path)
    elif way < 0.62:
        kind = "edited"
        path.write_bytes(mutations.edit(choose, path, data))
    elif way < 0.82:
        kind = "bytes"
        path.write_bytes(mutations.edit_bytes(choose, data))
    elif way < 0.94 and path.name.startswith("conformance"):
        kind = "many"
        path.write_bytes(mutations.many_rows(choose, data))
    elif way < 0.97 or path.parent == root:
        return "arguments", ["arguments"], arguments.hostile(choose, root)
    else:
        kind = mutations.rename_folder(choose, _folder_of(path, root))
        return kind, *commands.after_renaming(choose, path, root)
    names = commands.names_for(path, root)
    return kind, choose.sample(names, min(PER_INPUT, len(names))), None


def _folder_of(path: Path, root: Path) -> Path:
    """Return the folder of an image, or the one that a file is in."""
    return path.parent.parent if path.is_relative_to(root / "results") else path.parent


def run_one(seed: int | str, pristine: Path, root: Path) -> dict[str, object]:
    """Run one input in this process, which runs only this input; return the findings.

    With the name of a command in place of a seed, it runs on undamaged files.
    """
    shutil.copytree(pristine, root)
    os.mkfifo(root / "pipe")
    _enter(root)
    kind, names, arguments = mutate(seed, root) if isinstance(seed, int) else ("undamaged", [seed], None)
    problems, slowest, statuses = [], 0.0, []
    for name in names:
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        signal.alarm(WAITING_SECONDS)
        began = time.process_time()
        status, wrong = commands.run(name, root, arguments)
        problems += wrong
        statuses.append(status)
        slowest = max(slowest, time.process_time() - began)
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "seed": seed,
        "kind": kind,
        "names": names,
        "problems": problems,
        "seconds": slowest,
        "peak": peak,
        "statuses": statuses,
    }


def _enter(root: Path) -> None:
    """Make a folder the current one, the checkout, the home and the cache of this process: nothing else is read."""
    from recapture.base import paths

    os.chdir(root)
    os.environ.update(HOME=str(root), RECAPTURE_CACHE=str(root / "cache"), XDG_CACHE_HOME=str(root / "cache"))
    os.environ.pop("GITHUB_STEP_SUMMARY", None)
    paths.CHECKOUT = root


def child(seed: int | str, pristine: Path, root: Path) -> dict[str, object]:
    """Run one input in a child process with limits; an abnormal end is a finding as well."""
    answer, back = os.pipe()
    process = os.fork()
    if not process:
        try:
            os.close(answer)
            size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            findings = run_one(seed, pristine, root)
            with os.fdopen(back, "w") as out:
                json.dump(findings, out)
            os._exit(0)
        except BaseException as error:
            os.write(2, f"input {seed}: {type(error).__name__}: {error}\n".encode(errors="replace"))
            os._exit(70)
    os.close(back)
    with os.fdopen(answer) as pipe:
        text = pipe.read()
    _, status = os.waitpid(process, 0)
    shutil.rmtree(root, ignore_errors=True)
    if os.WIFSIGNALED(status) or os.WEXITSTATUS(status):
        how = f"died of {signal.Signals(status & 127).name}" if os.WIFSIGNALED(status) else "the fuzzer itself failed"
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGPROF, signal.SIGALRM):
            how = f"took more than {SECONDS} s of CPU time, or {WAITING_SECONDS} s in all"
        return {"seed": seed, "kind": "?", "names": [], "problems": [how], "seconds": 0.0, "peak": 0, "statuses": []}
    return json.loads(text)


def share(job: tuple[list[int | str], str]) -> list[dict[str, object]]:
    """Run several inputs one after the other, in a separate folder."""
    os.fsync = lambda _handle: None  # nothing here has to outlive a crash of the machine, and a disk takes its time
    seeds, folder = job
    import_all()
    pristine = Path(folder) / "pristine"
    work = Path(tempfile.mkdtemp(dir=folder))
    return [child(seed, pristine, work / "input") for seed in seeds]


def import_all() -> None:
    """Import the modules that the commands import, once for all children."""
    for name in MODULES:
        importlib.import_module(name)


def _tell(findings: list[dict[str, object]]) -> None:
    for each in findings:
        if each["problems"]:
            print(f"seed {each['seed']} ({each['kind']}, {', '.join(each['names'])}):")
            for problem in each["problems"][:3]:
                print(f"    {ascii(problem)[-1500:]}", flush=True)


def main() -> int:
    """Fuzz with the options of the command line; print figures, and each finding with its seed."""
    options = argparse.ArgumentParser()
    options.add_argument("--inputs", type=int, default=10_000)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--jobs", type=int, default=1)
    options.add_argument("--seconds", type=float, default=float("inf"), help="Stop after so long.")
    options.add_argument("--only", type=int)
    options.add_argument("--undamaged", action="store_true", help="Run every command once, on undamaged files.")
    parsed = options.parse_args()
    seeds: list[int | str] = list(range(parsed.seed, parsed.seed + parsed.inputs))
    if parsed.undamaged or parsed.only is not None:
        seeds = [*commands.expected()] if parsed.undamaged else [parsed.only]
    began = time.monotonic()
    findings: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        corpus.build(Path(folder) / "pristine")
        jobs = [(seeds[first : first + CHUNK], folder) for first in range(0, len(seeds), CHUNK)]
        with multiprocessing.get_context("spawn").Pool(parsed.jobs) as pool:
            for mine in pool.imap_unordered(share, jobs):
                findings += mine
                _tell(mine)
                if time.monotonic() - began > parsed.seconds:
                    break
    for each in findings if parsed.undamaged else ():
        print(f"{each['seed']}: {each['statuses'][0] if each['statuses'] else 'died'}")
    bad = [each for each in findings if each["problems"]]
    seconds = time.monotonic() - began
    kinds = ", ".join(f"{number} {kind}" for kind, number in sorted(Counter(each["kind"] for each in findings).items()))
    print(f"{len(findings)} inputs in {seconds:.0f} s, {len(findings) / seconds:.1f} a second: {kinds}")
    ends = Counter(status for each in findings for status in each["statuses"])
    print(f"exit statuses: {', '.join(f'{number} times {status}' for status, number in sorted(ends.items(), key=str))}")
    print(f"{sum(len(each['names']) for each in findings)} commands; the slowest took {max(each['seconds'] for each in findings):.1f} s; "
          f"peak memory {max(each['peak'] for each in findings) / 1024:.0f} MiB")  # fmt: skip
    print(f"{len(bad)} inputs with findings; repeat one with --only SEED" if bad else "no findings")
    return 1 if bad else 0
