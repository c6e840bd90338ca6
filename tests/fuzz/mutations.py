"""Ways to damage a result file or to make it hostile. Every choice comes from one random generator."""

from __future__ import annotations

import copy
import json
import os
import stat
import sys

from tests.fuzz import toml_text

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

RAW = "@@raw-token-{}@@"
"""A placeholder in a document for text that `json.dumps` would not write."""

MARKS = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "](javascript:alert(1))",
    "[evil](javascript:alert(1))",
    "![evil](http://evil.example/x.png)",
    "</code></li></ul></details><script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "\n\n# injected-heading\n\n",
    "\n\n| injected | table |\n|---|---|\n| a | b |\n\n",
    "a|b\\|c\\\\|d",
    "\n```\ninjected-code\n```\n",
    "````` `` ``` ````",
    "\n    injected-block\n\n    more\n",
    "\x1b[2J\x1b[31mred",
    "\x1b]52;c;aGVsbG8=\x07",
    "\x9b31mred\x9d0;title\x9c",
    "\u202egnp.exe\u202c",
    "\u2066isolated\u2069",
    "zero\u200bwidth\u200d\ufeff\u2060",
    "\r\nrecapture: fine\r",
    "\x00\x08\x7f",
    "line\u2028line\u2029line\x0b\x0c\x1c\x85end",
    "[bold red]markup[/bold red][/]",
    "{{ 7 * 7 }}{% raw %}",
    "https://evil.example/ www.evil.example evil@evil.example",
    "- item\n1. item\n> quote\n---\n",
    "\ud800",
    "",
    " ",
    "::",
    "a::b::c::d",
    "../../escape",
    "e\u0301\u0301\u0301\u0301",
    "%s %n {0} {x}",
    "`",
    "\\",
    "$x$ &lt;b&gt; &#60;script&#62;",
)
"""Texts with control sequences or markup for a terminal, Markdown, HTML, a template or a format string."""

NUMBERS = ("9" * 5000, "-" + "9" * 5000, "1e999", "1e308", "-1e308", "5e-324", "-1", "0", "-0.0", "NaN", "Infinity",
           str(2**63), str(-(2**63) - 1), str(2**64), "1.5", "1e-12", "true", "01", "0x10")  # fmt: skip

OTHERS = (None, True, "text", 7, -3.5, [], {}, [[]], {"a": {}}, [None, None])

DEEP = ("[" * 1100 + "]" * 1100, '{"a":' * 1100 + "1" + "}" * 1100, "[" * 100_000, "[" * 900 + "]" * 900)


def places(document, path=()):
    """Yield the path of every value in a document."""
    yield path
    pairs = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, value in pairs:
        yield from places(value, (*path, key))


def at(document, path):
    for key in path:
        document = document[key]
    return document


def put(document, path, value):
    if not path:
        return value
    at(document, path[:-1])[path[-1]] = value
    return document


class Editor:
    """Changes one document at random places; `write` turns it into text, with `between` from a name to its value."""

    def __init__(self, random, document, write=None, between=":"):
        self.random, self.document, self.raw = random, copy.deepcopy(document), {}
        self.write, self.between = write or self.json, between

    def json(self, document):
        return json.dumps(document, ensure_ascii=self.random.random() < 0.5, separators=(",", ":"))

    def place(self, *kinds):
        """The path of a value of some types; None where there is none."""
        paths = [path for path in places(self.document) if not kinds or type(at(self.document, path)) in kinds]
        return self.random.choice(paths) if paths else None

    def put(self, path, value):
        if path is not None:
            self.document = put(self.document, path, value)

    def put_raw(self, path, text):
        name = RAW.format(len(self.raw))
        self.raw[json.dumps(name)] = text
        self.put(path, name)

    def text(self):
        text = self.write(self.document)
        for name, raw in self.raw.items():
            text = text.replace(name, raw)
        return text.encode(errors="surrogatepass")

    # --- the ways

    def hostile_text(self):
        mark = self.random.choice(MARKS)
        path = self.place(str)
        if path is not None:
            old = at(self.document, path)
            self.put(path, self.random.choice((mark, old + mark, mark + old)))

    def hostile_texts(self):
        for _ in range(self.random.randint(2, 12)):
            self.hostile_text()

    def long_text(self):
        line = self.random.choice(("x", "word ", "line\n", "|", "`", "<b>", "\u202e", "\\", "1"))
        self.put(self.place(str), line * (self.random.choice((2_000, 40_000, 500_000)) // len(line)))

    def huge_number(self):
        path = self.place(int, float)
        if path is not None:
            self.put_raw(path, self.random.choice(NUMBERS))

    def other_type(self):
        self.put(self.place(), copy.deepcopy(self.random.choice(OTHERS)))  # a later change must not reach the constant

    def deep(self):
        self.put_raw(self.place(), self.random.choice(DEEP))

    def lose_field(self):
        path = self.place()
        if path and isinstance(at(self.document, path[:-1]), dict):
            del at(self.document, path[:-1])[path[-1]]

    def new_field(self):
        path = self.place(dict)
        if path is not None:
            name = self.random.choice(("brand_new", *MARKS))
            at(self.document, path)[name] = copy.deepcopy(self.random.choice(OTHERS))

    def twice(self):
        path = self.place(dict)
        value = at(self.document, path) if path is not None else None
        if value:
            name = self.random.choice(list(value))
            another_value = self.random.choice((*OTHERS, value[name]))
            texts = [
                f"{json.dumps(key)}{self.between}{self.value(item)}"
                for key, item in (*value.items(), (name, another_value))
            ]
            self.put_raw(path, "{" + ",".join(texts) + "}")

    def value(self, item):
        return json.dumps(item) if self.between == ":" else toml_text.value(item)

    def unequal(self):
        path = self.place(list)
        if path is None:
            return
        value = at(self.document, path)
        way = self.random.randrange(5)
        if way == 0:
            value.clear()
        elif way == 1:
            value[:] = value[: self.random.randint(0, len(value))]
        elif way == 2:
            value += copy.deepcopy(value)
        elif value:
            value[self.random.randrange(len(value))] = self.random.choice((0, -1.0, 1e-300, 1e300, None, "x"))

    def difference(self):
        """Add a difference with one odd field to what is silent or noted, where there are such lists."""
        paths = [path for path in places(self.document) if path and path[-1] in ("differences", "noted")]
        paths = [path for path in paths if isinstance(at(self.document, path), list)]
        if not paths:
            return
        odd = {"input": "held_out[0]", "where": "result", "kind": "value", "detail": "", "bits": "value"}
        name, value = self.random.choice(
            (
                ("kind", self.random.choice((*MARKS, "value", "alias", "watched", "state"))),
                ("input", self.random.choice((*MARKS, "example", "capture", "original"))),
                ("bits", self.random.choice(("rounding", "signed-zero", "nan-payload", *MARKS))),
                ("ulps", self.random.choice((0, -1, 2**62, 2**63, 1.5, None))),
                ("elements", self.random.choice(([1, 4], [4, 1], [0, 0], [-1, 2], [1], [1, 2, 3], None, "1 of 4"))),
            )
        )
        at(self.document, self.random.choice(paths)).append({**odd, name: value})

    def verdict(self):
        path = next((path for path in places(self.document) if path and path[-1] == "verdict"), None)
        words = ("pass", "wrong", "specialized", "error", "crash", "unstable", "not_applicable", "environment", "great")
        self.put(path, self.random.choice(words))


WAYS = [
    Editor.hostile_text,
    Editor.hostile_texts,
    Editor.hostile_texts,
    Editor.long_text,
    Editor.huge_number,
    Editor.other_type,
    Editor.deep,
    Editor.lose_field,
    Editor.new_field,
    Editor.twice,
    Editor.unequal,
    Editor.difference,
    Editor.verdict,
]


def edit(random, path, data):
    """Change the content of a file according to its format, which its name tells."""
    if path.suffix == ".txt":
        return edit_words(random, data)
    if path.suffix == ".toml":
        return _edited(Editor(random, tomllib.loads(data.decode()), toml_text.to_toml, "="))
    parts = data.splitlines() if path.suffix == ".jsonl" else [data]
    number = random.randrange(len(parts))
    parts[number] = _edited(Editor(random, json.loads(parts[number])))
    return b"\n".join(parts) + b"\n"


def _edited(editor):
    for _ in range(editor.random.choice((1, 1, 1, 2, 4))):
        editor.random.choice(WAYS)(editor)
    return editor.text()


def edit_words(random, data):
    """Change a line of a file of lines and words: a lock, or a requirements file."""
    lines = data.decode().splitlines()
    number = random.randrange(len(lines))
    words = lines[number].split(" ")
    mark = random.choice(
        (*MARKS, *NUMBERS, "==", ",", "x" * 40_000, "(" * 3000, "-r itself.txt", "a==1; " + "(" * 3000)
    )
    words[random.randrange(len(words))] = mark
    lines[number] = random.choice((" ".join(words), lines[number] + mark, mark))
    return ("\n".join(lines) + "\n").encode(errors="surrogatepass")


def edit_bytes(random, data):
    """Change bytes without regard to their meaning."""
    way = random.randrange(8)
    if way == 0:
        changed = bytearray(data)
        for _ in range(random.randint(1, 8)):
            changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
        return bytes(changed)
    if way == 1:
        return data[: random.randrange(len(data))]
    if way == 2:
        place = random.randrange(len(data))
        return data[:place] + random.randbytes(random.randint(1, 40)) + data[place:]
    if way == 3:
        lines = data.splitlines(keepends=True)
        random.shuffle(lines)
        return b"".join(lines)
    if way == 4:
        lines = data.splitlines(keepends=True)
        place = random.randrange(len(lines))
        return b"".join([*lines[:place], random.choice([b"\n", lines[place], b"null\n", b"\x00\n"]), *lines[place:]])
    if way == 5:
        return random.choice([b"", b"\n", b"\xef\xbb\xbf" + data, data.decode().encode("utf-16"), b"\xff" * 100, b"{}"])
    if way == 6:
        return random.choice(DEEP).encode() + b"\n"
    place = random.randrange(len(data))
    return data[:place] + random.choice(MARKS).encode(errors="surrogatepass") + data[place:]


def many_rows(random, data):
    """Many records of new suites, cases or compilers."""
    row = json.loads(random.choice(data.splitlines()))
    what, many = random.choice(("suites", "cases", "compilers")), random.choice((50, 300, 1500))
    rows = []
    for number in range(many):
        suite, name = row["case"].split("::", 1)
        new = {"suites": f"{suite}{number}::{name}", "cases": f"{suite}::{name}{number}"}.get(what, row["case"])
        compiler = f"{row['compiler']}{number}" if what == "compilers" else row["compiler"]
        rows.append(json.dumps({**row, "case": new, "compiler": compiler}))
    return ("\n".join(rows) + "\n").encode()


def rename_folder(random, folder):
    """Give a folder a hostile name; return the kind of input, ``unchanged`` where the file system refuses it."""
    name = random.choice(MARKS).replace("/", "_").replace("\0", "")
    try:
        folder.rename(folder.with_name(os.fsdecode((name + folder.name).encode(errors="surrogateescape"))[:80]))
    except (OSError, UnicodeError):
        return "unchanged"
    return "folder"


def replace_file(random, path):
    """Put something other than a regular file in a file's place."""
    decoy = path.with_name("decoy")
    decoy.write_bytes(path.read_bytes())
    path.unlink()
    way = random.randrange(7)
    if way == 0:
        path.symlink_to(decoy.name)
    elif way == 1:
        path.symlink_to(path.name)
    elif way == 2:
        path.symlink_to("absent")
    elif way == 3:
        os.mkfifo(path)
    elif way == 4:
        path.mkdir()
    elif way == 5:
        os.mknod(path, stat.S_IFSOCK | 0o600)
    # else: nothing is there
