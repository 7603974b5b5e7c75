"""Printed C, compiled with gcc and called from tests."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from rewrite_compiler.lang import Leaf
from rewrite_compiler.lowering.trap_analysis import static_size
from rewrite_compiler.readings.arrays.labelled_array import Data
from rewrite_compiler.readings.c.printer import PrintedFunction, Tables
from rewrite_compiler.readings.c.runtime import PRELUDE, RUNTIME, SCRATCH

GCC = shutil.which("gcc")
needs_gcc = pytest.mark.skipif(GCC is None, reason="gcc is not installed: printed C is neither compiled nor run")


class Library:
    """Printed functions, compiled together; each is called with its memories."""

    def __init__(self, functions: Sequence[PrintedFunction], tables: Tables, folder: Path) -> None:
        scratch = SCRATCH if any(f.allocates for f in (*functions, *tables.fills)) else ""
        text = [
            PRELUDE,
            RUNTIME,
            scratch,
            *tables.texts,
            tables.fill_text,
            *(f.text for f in functions),
            "void start(void);",
            "void start(void) { fm_fill_tables(); }",
        ]
        text += [_entry(f) for f in functions]
        (folder / "t.c").write_text("\n".join(text))
        flags = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-missing-prototypes", "-shared", "-fPIC"]
        run = subprocess.run([str(GCC), *flags, "t.c", "-o", "t.so", "-lm"], cwd=folder, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr[:2000]
        self.library, self.functions = ctypes.CDLL(str(folder / "t.so")), {f.name: f for f in functions}
        self.library.start()

    def run(self, name: str, memories: dict[Leaf, Data]) -> int:
        """Run a function in place on its memories; return what it answers."""
        places = (ctypes.c_void_p * len(memories))(*(memories[m].ctypes.data for m in self.functions[name].memories))
        sizes = (ctypes.c_int64 * len(memories))(*(memories[m].size for m in self.functions[name].memories))
        return int(getattr(self.library, f"call_{name}")(places, sizes))


def _entry(f: PrintedFunction) -> str:
    """Return a function of addresses and sizes; only memories of no constant size take theirs."""
    arguments = ["&s"]
    for n, memory in enumerate(f.memories):
        arguments += [f"places[{n}]", *([f"sizes[{n}]"] if static_size(memory) is None else [])]
    head, body = f"int call_{f.name}(void **places, int64_t *sizes)", f"return {f.name}({', '.join(arguments)});"
    return f"{head};\n{head} {{ fm_scratch s = {{0}}; (void)places; (void)sizes; {body} }}"
