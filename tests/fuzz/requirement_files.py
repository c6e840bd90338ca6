"""Requirements files of a hostile user: options, hashes, addresses, files that name each other, control characters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fuzz import mutations

if TYPE_CHECKING:
    import random
    from pathlib import Path

FILES = ("requirements.txt", "more.txt", "third.txt")
"""The files of a user, the first of which the user names; any of them may name any other, and itself."""

RESOLVED = "resolved.txt"
"""The file in which uv writes what a user's requirements need."""

NAMES = ("numpy", "attrs", "Attrs", "ruamel.yaml", "a-b_c.d", "é", "-x", "x" * 5000, "", "torch")
VERSIONS = (
    "==2.0",
    ">=1.20",
    "~=1.4",
    "!=3.0",
    "===anything",
    "<",
    "==1.*",
    "==9" * 400,
    ">=1,<2",
    " == 1.0 ",
    "[extra]==1",
)
MARKERS = ("", " ; python_version > '3.8'", " ; sys_platform == 'win32'", " ; nothing == 1", " ; " + "(" * 3000, " ;")
HASHES = (
    "--hash=sha256:" + "0" * 64,
    "--hash sha256:" + "f" * 64,
    "--hash=md5:1",
    "--hash=",
    "--hash",
    "--hash=sha256:" + "g" * 10_000,
)
NOWHERE = "https://me:secret@index.invalid/packages"
OPTIONS = (
    f"--index-url {NOWHERE}",
    "-i https://index.invalid",
    "--index-url=",
    f"--extra-index-url={NOWHERE}",
    "--find-links ./wheels",
    "--find-links=../../../../etc",
    "-f 'a b'",
    "--no-index",
    "--require-hashes",
    "--no-binary :all:",
    "--only-binary=:none:",
    "--pre",
    "--trusted-host index.invalid",
    "--unknown-option --" + "y" * 3000,
    "-e .",
    "--editable=./folder",
    "-e git+https://example.invalid/x.git@main#egg=x",
    "./a-1.0-py3-none-any.whl",
    "../up",
    "/etc/passwd",
    "https://example.invalid/a-1.0-py3-none-any.whl#sha256=" + "0" * 64,
    "a @ file:///etc/passwd",
    "a @ git+ssh://git@example.invalid/a.git",
    "git+file:///tmp/x",
    "$HOME ${HOME} %HOME% ~",
    "`id` $(id) ; id | id",
)


def write(choose: random.Random, root: Path) -> None:
    """Write requirements files, and what uv makes of them, below a folder."""
    for name in (*FILES, RESOLVED):
        lines = [_line(choose) for _ in range(choose.choice((0, 1, 4, 30)))]
        if name == FILES[0]:
            lines.insert(choose.randint(0, len(lines)), f"-r {choose.choice(FILES)}")
        text = choose.choice(("\n", "\n", "\r\n", " \\\n", "\r")).join(lines)
        data = text.encode("utf-8", "replace")
        if choose.random() < 0.2:
            data = mutations.edit_bytes(choose, data) if data else b"\xff\xfe"
        (root / name).write_bytes(data)


def _line(choose: random.Random) -> str:
    way = choose.random()
    if way < 0.4:
        hashes = choose.choices(HASHES, k=choose.randint(0, 3))
        name, version, marker = choose.choice(NAMES), choose.choice(VERSIONS), choose.choice(MARKERS)
        return " ".join([f"{name}{version}{marker}", *hashes])
    if way < 0.6:
        return choose.choice(OPTIONS)
    if way < 0.75:
        option = choose.choice(("-r ", "-r", "--requirement=", "-c ", "--constraint "))
        return option + choose.choice(
            (*FILES, f"./{FILES[1]}", "../" + FILES[0], "absent.txt", ".", "pipe", "'", "/dev/zero")
        )
    if way < 0.9:
        return choose.choice(mutations.MARKS)
    return choose.choice(
        ("#", " # note", "a==1 #", "a==1\\", "\\", "\t", "\x00", "\x1b[31ma==1", "a==1\x85b==2", "[a]", "a b c")
    )
