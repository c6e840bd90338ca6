"""AOTInductor's wrappers in two parts, of which a run compiles one only once.

The C++ code around the kernels of a program, its wrapper, begins with the interface of the library, which is the same
text for every program and takes most of the time to compile. `share_interface` makes this process compile it once and
link the result with what is the program's own. Kernels are other files and are compiled as torch does it.
"""

from __future__ import annotations

import hashlib
import importlib
import logging
import os
import shlex
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from recapture.torch_api.kept_builds import keeping

FOLDER = "interfaces"
"""Name of the folder, in the directory of this run's caches, for compiled interfaces."""

SUFFIX = ".wrapper.cpp"
"""How the name of a wrapper ends where kernels are in a file of their own (since about 2.8)."""

CONTAINER = "aoti_runtime/model_container.h"
"""The header of what the interface calls programs with; its templates take a fifth of the time to compile a wrapper."""

DECLARED = "namespace torch::aot_inductor {{ {}template class AOTInductorModelBase<AOTInductorModel>; }}\n"
"""The class, declared or defined, whose members each part of a wrapper would otherwise compile for itself."""

refused: set[str] = set()
"""Keys of interfaces that did not compile."""


class Parts(NamedTuple):
    """The two parts of a wrapper, as C++."""

    shared: str
    own: str


def split(text: str, interface: str, path: str) -> Parts | None:
    """Return the parts of the wrapper at `path`, or None if it has no such interface.

    Line numbers and `__FILE__` of the program's own part stay those of the wrapper, because messages have them.
    """
    if not interface or text.count(interface) != 1:
        return None
    before, separator, after = text.partition(interface)
    # The program's own code needs the model, which its first lines include; the container is the interface's alone.
    lines = (line for line in interface.splitlines() if line.startswith("#include ") and CONTAINER not in line)
    includes = "".join(f"{line}\n" for line in lines)
    line = (before + separator).count("\n") + 1
    own = before + includes + DECLARED.format("extern ") + f'#line {line} "{path}"\n' + after
    return Parts(before + separator + "\n" + DECLARED.format(""), own)


def part_key(text: str, command: list[str]) -> str:
    """Return the name under which a compiled part is kept: another text, option, compiler or torch gives another."""
    import torch

    compiler = shutil.which(command[0]) or command[0]
    status = Path(compiler).stat()
    identity = (str(torch.__version__), compiler, str(status.st_size), str(status.st_mtime_ns))
    return hashlib.sha256("\0".join((text, *command, *identity)).encode()).hexdigest()


def share_interface() -> None:
    """Make this process, and those it forks, compile wrappers in two parts.

    Where the release builds them otherwise, or a part does not compile, the wrapper is compiled as torch does it.
    """
    builder: Any = getattr(importlib.import_module("torch._inductor.cpp_builder"), "CppBuilder", None)
    usual: Any = getattr(builder, "build", None)
    if hasattr(usual, "keeps"):  # what is kept comes first, here as there
        usual = usual.__wrapped__
    interface = Path(importlib.import_module("torch._inductor.codegen").__path__[0], "aoti_runtime", "interface.cpp")
    if usual is None or not interface.is_file():
        return
    text = interface.read_text().strip("\n")

    def build(self: Any) -> Any:
        try:
            if _build_in_parts(shlex.split(self.get_command_line()), Path(self.get_target_file_path()), text):
                return None
        except Exception as error:  # torch's own way shows what is wrong
            logging.getLogger(__name__).debug("wrapper in parts: %r", error)
        return usual(self)

    builder.build = keeping(build)


@cache
def package_once() -> None:
    """Package one program, so that AOTInductor has its precompiled headers (since about 2.8) and the interface."""
    import torch

    if not hasattr(importlib.import_module("torch._inductor.codecache"), "_precompile_header"):
        return

    class Sample(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return torch.sin(x) + 1

    share_interface()
    inductor = torch._inductor  # noqa: SLF001 - the name in torch's documentation
    with torch.no_grad():
        inductor.aoti_compile_and_package(torch.export.export(Sample(), (torch.ones(3),)))


def prepare_packaging() -> None:
    """Do once what AOTInductor does in each process before it packages a program, without using a GPU.

    It asks which of the processor's instruction sets the C++ compiler knows. For each one torch compiles a library and
    loads it in a new Python that imports torch, which takes 3 to 14 s. Here they are tried at the same time, in threads
    that have ended when this returns; torch keeps the answers.
    """
    share_interface()
    module: Any = importlib.import_module("torch._inductor.cpu_vec_isa")
    present = module.x86_isa_checker()
    known = [isa for isa in module.supported_vec_isa_list if set(str(isa).split()) <= set(present)]
    with ThreadPoolExecutor() as threads:
        list(threads.map(bool, known))
    module.valid_vec_isa_list()


def _build_in_parts(command: list[str], target: Path, interface: str) -> bool:
    """Build what a command builds if it compiles a wrapper; False if it does something else."""
    sources = [word for word in command if word.endswith(SUFFIX)]
    directory = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    if len(sources) != 1 or "-c" not in command or str(target) not in command or not directory:
        return False
    parts = split(Path(sources[0]).read_text(), interface, sources[0])
    if parts is None:
        return False
    general = [{sources[0]: "SOURCE", str(target): "TARGET"}.get(word, word) for word in command]
    key = part_key(parts.shared, general)
    if key in refused:
        return False
    path = Path(directory, FOLDER, f"{key}.o")
    path.parent.mkdir(mode=0o700, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        if not path.exists():
            refused.add(key)  # until it has compiled
            optimised = ["-O1" if word == "-O0" else word for word in general]  # as by default: smaller, faster to link
            _compile(optimised, parts.shared, Path(folder, "shared.cpp"), Path(folder, "shared.o"))
            Path(folder, "shared.o").replace(path)
            refused.discard(key)
        try:
            _compile(general, parts.own, Path(folder, "own.cpp"), Path(folder, "own.o"))
        except subprocess.CalledProcessError:
            refused.add(key)  # the next program would not compile in parts either
            raise
        joined = Path(folder, "joined.o")
        _run([command[0], "-r", "-nostdlib", "-o", str(joined), str(Path(folder, "own.o")), str(path)], folder)
        joined.replace(target)
    return True


def _compile(general: list[str], text: str, source: Path, target: Path) -> None:
    source.write_text(text)
    _run([{"SOURCE": str(source), "TARGET": str(target)}.get(word, word) for word in general], str(source.parent))


def _run(command: list[str], folder: str) -> None:
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
