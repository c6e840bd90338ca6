"""Checks of the tools that compile generated code: the C++ and C compilers and Python's headers."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path

from recapture.machine.doctor.facts import Facts, execute, first_error
from recapture.machine.doctor.register import Finding, check, fault, ok, warning

HEADERS_SINCE = (2, 3)
"""The first torch whose Inductor includes Python.h in what it compiles for the CPU."""


@check(
    "python-headers",
    affects="codegen",
    # The last pattern matches a failed build of Triton's driver module: gcc's own messages go only to stderr.
    signature=r"Python\.h['\"]?: No such file|'Python\.h' file not found"
    r"|Command '\[.*\.c'.*'-shared'.*non-zero exit status",
)
def python_headers(facts: Facts) -> Finding:
    """Compile a line that includes Python.h, with the directories Inductor passes."""
    if facts.device == "cpu" and facts.torch.release < HEADERS_SINCE:
        return ok(f"not needed: Inductor of torch {facts.torch.version} does not include Python.h")
    directories = dict.fromkeys(
        path for path in (sysconfig.get_path("include"), sysconfig.get_path("include", scheme="posix_prefix")) if path
    )
    where = ", ".join(directories)
    fix = f"install the headers of Python {sysconfig.get_python_version()} (Debian: python3-dev), or another Python"
    if not any(Path(directory, "Python.h").is_file() for directory in directories):
        return fault(f"no Python.h in {where}", fix)
    if facts.cxx is None or facts.cxx_error:  # another check reports this
        return ok(f"Python.h is in {where}")
    # The file may be there and not fit: pyconfig.h can be missing, or be of another machine.
    command = [facts.cxx, "-x", "c++", "-fsyntax-only", *(f"-I{directory}" for directory in directories), "-"]
    done = execute(command, stdin="#include <Python.h>\n")
    if done.returncode == 0:
        return ok(f"compiled with Python.h of {where}")
    return fault(f"cannot compile with Python.h of {where}: {first_error(done.stderr)}", fix)


@check(
    "cxx-compiler",
    affects="codegen",
    signature=r"InvalidCxxCompiler|No working C\+\+ compiler found|fatal error: \S+: No such file|'\S+' file not found"
    r"|cannot find (?:-l|crt|\S+\.o\b)|No such file or directory: '(?:g\+\+|gcc|c\+\+|clang\+\+)'",
)
def cxx_compiler(facts: Facts) -> Finding:
    """Build a shared library as Inductor does, with OpenMP, using the compiler it would use."""
    fix = "install g++ and the C library's headers (Debian: g++ libc6-dev), or set CXX to a C++ compiler"
    if facts.cxx is None:
        return fault(f"no C++ compiler: {os.environ.get('CXX', 'g++')} does not answer --version", fix)
    if facts.cxx_error:
        return fault(f"{facts.cxx} cannot build a library with OpenMP: {facts.cxx_error}", fix)
    return ok(execute([facts.cxx, "--version"]).stdout.partition("\n")[0])


@check(
    "c-compiler",
    affects="codegen",
    signature=r"Failed to find C compiler|No such file or directory: '(?:gcc|clang|cc)'",
)
def c_compiler(facts: Facts) -> Finding:
    """Look for the C compiler that Triton builds its launchers with."""
    fix = "install gcc, or set CC to a C compiler"
    message = "no C compiler: CC is not set, neither gcc nor clang is on PATH"
    if facts.cc is not None:
        try:
            done = execute([facts.cc, "--version"])
        except OSError:
            done = None
        if done is not None and done.returncode == 0:
            return ok(done.stdout.partition("\n")[0])
        message = f"the C compiler {facts.cc} does not answer --version"
    if facts.device == "cpu":
        return warning(f"{message} (only Triton needs one, on a GPU)", fix)
    return fault(message, fix)
