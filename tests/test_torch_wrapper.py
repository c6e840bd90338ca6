"""AOTInductor's wrappers, of which a run compiles the part that all have in common only once."""

import os
import subprocess
import sys

import pytest

from recapture.torch_api.compat import isolate_caches
from recapture.torch_api.wrapper import part_key, split

INTERFACE = '#include <vector>\n#define CHECK 1\nextern "C" {\nint version() { return 1; }\n}'
WRAPPER = f"#include <string>\n{INTERFACE}\n\nint line() {{ return __LINE__; }}\nint last() {{ return 3; }}\n"


def test_the_programs_own_part_keeps_its_line_numbers_and_its_file_name():
    parts = split(WRAPPER, INTERFACE, "/cache/a.wrapper.cpp")
    before, _, after = parts.own.partition("#line ")
    number, _, own_part = after.partition(' "/cache/a.wrapper.cpp"\n')
    assert own_part.splitlines()[1:] == WRAPPER.splitlines()[int(number) :]  # the first ends the interface's last line
    assert "int line() { return __LINE__; }" in own_part
    assert "#include <string>\n#include <vector>\n" in before
    assert "version" not in parts.own


def test_the_programs_own_part_leaves_out_the_container_of_the_interface():
    interface = f"#include <torch/csrc/inductor/aoti_runtime/model_container.h>\n{INTERFACE}"
    parts = split(f"#include <string>\n{interface}\nint a;\n", interface, "x")
    assert "model_container.h" in parts.shared
    assert "model_container.h" not in parts.own
    assert "#include <vector>\n" in parts.own


def test_what_all_wrappers_have_in_common_is_without_the_program():
    first, second = (split(f"// common\n{INTERFACE}\n{program}\n", INTERFACE, "x") for program in ("int a;", "int b;"))
    assert first.shared == second.shared
    assert INTERFACE in first.shared
    assert "int a;" not in first.shared
    assert first.own != second.own


@pytest.mark.parametrize(
    ("text", "interface"),
    [("int a;\n", INTERFACE), (WRAPPER, ""), (WRAPPER + INTERFACE, INTERFACE)],
    ids=["none", "empty", "twice"],
)
def test_a_wrapper_without_exactly_one_interface_is_not_divided(text, interface):
    assert split(text, interface, "x") is None


def test_another_text_option_or_compiler_is_another_part(tmp_path):
    compilers = [tmp_path / name for name in ("one", "other")]
    for compiler in compilers:
        compiler.write_text("#!/bin/sh\n")
    command = [str(compilers[0]), "-O0", "SOURCE"]
    same = part_key("int a = 1;", command)
    assert same == part_key("int a = 1;", list(command))
    others = [
        part_key("int a = 2;", command),
        part_key("int a = 1;", [command[0], "-O1", "SOURCE"]),
        part_key("int a = 1;", [str(compilers[1]), "-O0", "SOURCE"]),
    ]
    compilers[0].write_text("#!/bin/sh\n# another version\n")
    others.append(part_key("int a = 1;", command))
    assert len({same, *others}) == 5


PROGRAMS = """
import os, pathlib
import torch
from torch._inductor import config, cpp_builder
from recapture.torch_api import wrapper as torch_wrapper

usual = []
build = cpp_builder.CppBuilder.build
cpp_builder.CppBuilder.build = lambda self: (usual.append(self.get_target_file_path()), build(self))[1]
torch_wrapper.share_interface()


class Program(torch.nn.Module):
    def __init__(self, number):
        super().__init__()
        self.number = number
        self.weight = torch.nn.Parameter(torch.full((3,), float(number)))

    def forward(self, x):
        return torch.relu(x) @ self.weight + self.number


def result(number, level="O0"):
    config.aot_inductor.compile_wrapper_opt_level = level
    with torch.no_grad():
        path = torch._inductor.aoti_compile_and_package(torch.export.export(Program(number), (torch.ones(3),)))
        return float(torch._inductor.aoti_load_package(path)(torch.ones(3)))


def parts():
    return len(list(pathlib.Path(os.environ["TORCHINDUCTOR_CACHE_DIR"], "interfaces").glob("*.o")))


def whole():
    return sum(path.endswith(".wrapper.o") for path in usual)


print(result(2), parts(), result(5), parts(), result(7, "O1"), parts(), whole())
torch_wrapper.DECLARED = "this is no C++;"
print(result(3), parts(), whole())
"""


@pytest.mark.slow
def test_programs_share_an_interface_for_the_same_options_and_one_that_does_not_compile_is_not_divided(tmp_path):
    environment = dict(os.environ)
    for name in ("cache", "tmp"):
        (tmp_path / name).mkdir()
    isolate_caches(str(tmp_path / "cache"), str(tmp_path / "tmp"), environment)
    command = [sys.executable, "-W", "ignore", "-c", PROGRAMS]
    answer = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    assert answer.splitlines() == ["8.0 1 20.0 1 28.0 2 0", "12.0 2 1"]
