"""The house rules: layers, sizes, docstrings, imports, forbidden calls, repeated blocks."""

from __future__ import annotations

import ast
import importlib
import statistics
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from campaign import KEPT
from house import CONTENT, ENGINE, ROOT, Definition, Function, Import, Module, calls, length, modules, repeated_blocks, share_at_most

import rewrite_compiler

pytestmark = pytest.mark.xdist_group("house")  # one worker parses the tree once

# From the top down: a package imports only packages in rows below its own; those in one row marked "apart" not each other.
LAYERS = (
    ("cli",),
    ("report",),
    ("study",),
    ("emit", "cosim"),
    ("compile",),
    ("data",),
    ("prove",),
    ("fit",),
    ("sched",),
    ("target",),
    ("egraph", "ila", "frontend", "hostrun"),
    ("rewrite",),
    ("ir",),
    ("ops",),
    ("kernels",),
    ("readings",),
    ("lowering",),
    ("lang",),
    ("limits", "errors", "callable_module", "child_process", "disk_cache", "garbage", "intake", "public_calls", "user_code"),
)
APART = {"egraph", "ila", "frontend", "hostrun"}
LEVEL = {package: len(LAYERS) - k for k, row in enumerate(LAYERS) for package in row}

# What content may import from the engine: the package itself, its namespaces, and the kinds of refusal.
NAMESPACES = {ENGINE, *(f"{ENGINE}.{name}" for name in ("lang", "ops", "ila", "target", "rewrite", "errors"))}
# Content that builds on other content.
BUILDS_ON = {"targets": {"ila_models"}}

# Package → where it may be imported.
HEAVY = {
    "z3": ("rewrite_compiler/readings/smt/", "rewrite_compiler/readings/verilog/"),
    "egglog": ("rewrite_compiler/egraph/",),
    # applications write their models with onnx
    "onnx": (
        "rewrite_compiler/frontend/",
        "rewrite_compiler/hostrun/sign_conversion",
        "apps/digits/export.py",
        "apps/codec/export.py",
        "apps/keccak/",
        "apps/keywords/export.py",
        "apps/gallery/",
    ),
    "onnxruntime": ("rewrite_compiler/hostrun/",),
    "llvmlite": ("rewrite_compiler/readings/native/", "rewrite_compiler/kernels/"),
    "torch": ("rewrite_compiler/frontend/exporters",),  # an extra, as are the three below
    "keras": ("rewrite_compiler/frontend/exporters",),
    "skl2onnx": ("rewrite_compiler/frontend/exporters",),
    "pandas": ("rewrite_compiler/data/data_frame",),
    "distributed": ("rewrite_compiler/cosim/cluster",),
    "PIL": ("rewrite_compiler/data/pillow",),
    "sklearn": ("apps/digits/data.py", "apps/codec/photographs.py"),  # an extra; only the scripts that write data read the bundled images
}
FIRST_ANSWER_WITHOUT = {"numpy", "onnx", "onnxruntime", "egglog", "z3", "llvmlite", "highspy"}

NEVER = {"pickle", "marshal", "shelve", "dill", "joblib", "cloudpickle", "socket", "urllib", "http", "requests", "ftplib", "telnetlib"}
# (file or folder, call) → why it is safe there.
ALLOWED = {
    ("rewrite_compiler/__init__.py", "getattr"): "the name is a key of the table above it",
    ("rewrite_compiler/__init__.py", "import_module"): "the module is a value of the table above it",
    ("rewrite_compiler/callable_module.py", "getattr"): "the name is a key of the package's own table",
    ("rewrite_compiler/callable_module.py", "import_module"): "the module is a value of the package's own table",
    ("rewrite_compiler/cli/main.py", "import_module"): "the module is a value of the table of verbs",
    ("rewrite_compiler/egraph/saturation/engine.py", "import_module"): "a literal name, imported late",
    ("rewrite_compiler/egraph/saturation/engine.py", "exec_module"): "the compiled half of egglog, without the package around it",
    ("rewrite_compiler/lang/formats.py", "getattr"): "the names are the dataclass's own fields",
    ("rewrite_compiler/readings/oracle/emit_python.py", "compile"): "text printed by the lowering; every identifier is numbered",
    ("rewrite_compiler/readings/oracle/emit_python.py", "exec"): "text printed by the lowering; every identifier is numbered",
    ("rewrite_compiler/readings/smt/normal_form_code.py", "exec"): "text of terms in normal form; every identifier is numbered",
    ("rewrite_compiler/readings/smt/normal_form_code.py", "compile"): "the same text",
    ("rewrite_compiler/readings/oracle/emit_python.py", "getattr"): "functions of math from a literal tuple",
    ("rewrite_compiler/cosim/metrics/custom_metric.py", "import_module"): "the module that the user gave to --metric",
    ("rewrite_compiler/ila/registry.py", "import_module"): "modules found in the package's own ila_models folder",
    ("rewrite_compiler/rewrite/ruleset.py", "import_module"): "modules found in the package's own rules folder",
    ("rewrite_compiler/target/discovery.py", "import_module"): "modules found in the package's own targets folder",
    ("rewrite_compiler/rewrite/user_file.py", "exec_module"): "the file that the user gave to --accel or --rules",
}

FOLDER_FILES = 15
LONG_FOLDERS = {"rewrite_compiler/cli/verbs"}  # one kind of thing each
FILE_LINES = {"median": 130, "p90": 350, "max": 600}
FUNCTION_LINES = {"median": 8, "p90": 28, "p99": 40, "max": 60}
PUBLIC_NAMES = 19


def listed(found: Iterator[str]) -> None:
    """Fail with every finding on its own line."""
    lines = sorted(found)
    assert not lines, "\n" + "\n".join(lines)


@cache
def every_import() -> tuple[tuple[Module, Import], ...]:
    return tuple((module, i) for module in modules() for i in module.imports())


@cache
def every_function() -> tuple[tuple[Module, str, Function], ...]:
    return tuple((m, name, node) for m in modules() for name, node in m.definitions if not isinstance(node, ast.ClassDef))


def inner_package(name: str) -> str:
    """Return the engine's package or content folder that an installed name lies in."""
    parts = name.split(".")
    return parts[1] if parts[0] == ENGINE and len(parts) > 1 else ""


def test_every_package_has_its_layer() -> None:
    listed(str(m) for m in modules() if m.folder not in {*LEVEL, *CONTENT, ""})


def points_up(importer: str, imported: str) -> bool:
    """Whether one package of the engine may not import the other."""
    if importer == imported or importer not in LEVEL or imported not in LEVEL:
        return False
    return LEVEL[imported] > LEVEL[importer] or {importer, imported} <= APART


def test_imports_point_down() -> None:
    listed(f"{m}:{i.line} imports {i.target}" for m, i in every_import() if points_up(m.folder, inner_package(i.target)))


@pytest.mark.parametrize(
    ("importer", "imported", "expected"),
    [("lang", "ir", True), ("ir", "lang", False), ("ila", "egraph", True), ("limits", "errors", False), ("ila", "ila", False)],
)
def test_up_is_told_from_down(importer: str, imported: str, expected: bool) -> None:
    assert points_up(importer, imported) is expected


def test_the_engine_names_no_content() -> None:
    """Only `flexmatch demo` knows the shipped applications; rules and targets are found by their folder."""
    engine = ((m, i) for m, i in every_import() if m.folder not in CONTENT and inner_package(i.target) in CONTENT)
    listed(f"{m}:{i.line} imports {i.target}" for m, i in engine if (m.folder, inner_package(i.target)) != ("cli", "apps"))


def test_content_imports_only_public_namespaces() -> None:
    def is_public(module: Module, i: Import) -> bool:
        folder = inner_package(i.target)
        if folder == module.folder or folder in BUILDS_ON.get(module.folder, ()):
            return True
        return (i.module if i.name else i.target) in NAMESPACES and not i.name.startswith("_")

    content = ((m, i) for m, i in every_import() if m.folder in CONTENT and i.package == ENGINE)
    listed(f"{m}:{i.line} imports {i.target}" for m, i in content if not is_public(m, i))


def test_content_is_imported_by_its_installed_name() -> None:
    scanned = (*modules(), *(Module(path, path.stem) for folder in ("tests", "benchmarks") for path in (ROOT / folder).rglob("*.py")))
    listed(f"{m}:{i.line} imports {i.target}" for m in scanned for i in m.imports() if i.package in CONTENT)


def circles(graph: dict[str, set[str]]) -> list[tuple[str, ...]]:
    """Return the sets of modules that import one another, lazily and for types, too (Tarjan's strongly connected components)."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    waiting: list[str] = []
    found = []

    def visit(name: str) -> None:
        number[name] = low[name] = len(number)
        waiting.append(name)
        for other in sorted(graph.get(name, ())):
            if other not in number:
                visit(other)
            if other in waiting:
                low[name] = min(low[name], low[other])
        if low[name] == number[name]:
            at = waiting.index(name)
            found.append(tuple(sorted(waiting[at:])))
            del waiting[at:]

    for name in sorted(graph):
        if name not in number:
            visit(name)
    return sorted(c for c in found if len(c) > 1)


def import_graph() -> dict[str, set[str]]:
    """Return which module of the engine imports which, lazily and for types, too."""
    names = {m.name for m in modules()}
    graph: dict[str, set[str]] = {}
    for m, i in every_import():
        target = next((x for x in (i.target, i.module) if x in names), None)
        if target is not None and target != m.name and m.folder in LEVEL:
            graph.setdefault(m.name, set()).add(target)
    return graph


def test_no_modules_import_one_another() -> None:
    listed(" ".join(c) for c in circles(import_graph()))


def test_no_folders_import_one_another() -> None:
    """A package's `__init__` only passes names on, so it counts neither as importer nor as imported."""
    packages = {m.name for m in modules() if m.path.name == "__init__.py"}
    graph: dict[str, set[str]] = {}
    for importer, targets in import_graph().items():
        for target in targets - packages:
            folders = importer.rpartition(".")[0], target.rpartition(".")[0]
            if importer not in packages and folders[0] != folders[1]:
                graph.setdefault(folders[0], set()).add(folders[1])
    assert len(graph) > 40
    listed(" ".join(c) for c in circles(graph))


def test_a_circle_is_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set(), "e": {"e"}}) == [("a", "b", "c")]
    assert circles({"a": {"b", "c"}, "b": {"c"}}) == []


def test_folders_are_short() -> None:
    sizes: dict[Path, int] = {}
    for m in modules():
        if m.path.name != "__init__.py" and m.folder in LEVEL:
            sizes[m.path.parent] = sizes.get(m.path.parent, 0) + 1
    long = {str(f.relative_to(ROOT)): n for f, n in sizes.items() if n > FOLDER_FILES}
    listed(f"{f} has {n} files" for f, n in long.items() if f not in LONG_FOLDERS)
    assert not LONG_FOLDERS - long.keys(), "folders that are short now"


def test_private_names_stay_in_their_package() -> None:
    private = ((m, i) for m, i in every_import() if i.package == ENGINE and any(p.startswith("_") for p in i.target.split(".")))
    listed(f"{m}:{i.line} imports {i.target}" for m, i in private if m.folder != inner_package(i.target))


def test_heavy_packages_are_imported_in_one_place() -> None:
    heavy = ((m, i) for m, i in every_import() if i.package in HEAVY)
    listed(f"{m}:{i.line} imports {i.package}" for m, i in heavy if not str(m).startswith(HEAVY[i.package]))


def test_every_other_import_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    names = {"z3-solver": "z3", "scikit-learn": "sklearn", "pillow": "PIL"}
    extras = project["optional-dependencies"]
    wanted = [
        *project["dependencies"],
        *extras["apps"],
        *extras["scale"],
        *extras["torch"],
        *extras["sklearn"],
        *extras["keras"],
        *extras["pandas"],
    ]
    declared = {names.get(d, d) for d in (w.partition(">=")[0] for w in wanted)}
    known = {*sys.stdlib_module_names, *declared, ENGINE}
    listed(f"{m}:{i.line} imports {i.package}" for m, i in every_import() if i.package not in known)


@pytest.mark.parametrize("arguments", [("-c", "import rewrite_compiler"), ("-m", "rewrite_compiler.cli.main", "--help")], ids=" ".join)
def test_the_first_answer_loads_nothing_heavy(arguments: tuple[str, ...], tmp_path: Path) -> None:
    command = [sys.executable, "-X", "importtime", *arguments]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True)
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in run.stderr.splitlines() if line.startswith("import time:")}
    assert "rewrite_compiler" in loaded or "--help" in arguments
    assert not loaded & FIRST_ANSWER_WITHOUT


def test_the_language_loads_no_reading() -> None:
    """Syntax stands alone: its import brings neither numpy nor anything that evaluates, prints or proves."""
    script = "import sys, rewrite_compiler.lang; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=True)
    loaded = set(run.stdout.split())
    own = {name for name in loaded if name.startswith(f"{ENGINE}.")}
    assert f"{ENGINE}.lang.expr" in own
    assert not {name.partition(".")[0] for name in loaded} & FIRST_ANSWER_WITHOUT
    listed(name for name in own if inner_package(name) not in {"lang", "errors"})


@pytest.mark.parametrize("package", ["compile", "cosim.cosimulate", "target", "ila"])
def test_what_only_some_runs_need_is_loaded_by_those(package: str) -> None:
    """Neither solver, code generator, grammar nor prover is there before something is to be proved, compiled or parsed."""
    script = f"import sys, {ENGINE}.{package}; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=True)
    loaded = set(run.stdout.split())
    assert f"{ENGINE}.{package}" in loaded
    assert not {name.partition(".")[0] for name in loaded} & {"z3", "llvmlite", "lark", "egglog", "onnxruntime", "highspy"}
    assert not loaded & {f"{ENGINE}.prove.certificates.judge", f"{ENGINE}.kernels.run", f"{ENGINE}.ila.simulation.simulator"}


def test_files_are_short() -> None:
    lines = [m.lines for m in modules() if m.lines]
    assert statistics.median(lines) <= FILE_LINES["median"]
    assert share_at_most(lines, 0.9) <= FILE_LINES["p90"]
    shipped_and_tests = [*modules(), *(Module(path, path.stem) for path in (ROOT / "tests").rglob("*.py"))]
    listed(f"{m} has {m.lines} lines" for m in shipped_and_tests if m.lines > FILE_LINES["max"])


def test_functions_are_short() -> None:
    functions = [(m, name, length(node)) for m, name, node in every_function()]
    lines = [n for *_, n in functions]
    assert statistics.median(lines) <= FUNCTION_LINES["median"]
    assert share_at_most(lines, 0.9) <= FUNCTION_LINES["p90"]
    assert share_at_most(lines, 0.99) <= FUNCTION_LINES["p99"]
    listed(f"{m} {name} has {n} lines" for m, name, n in functions if n > FUNCTION_LINES["max"])


def test_everything_public_says_what_it_is() -> None:
    def needs_text(name: str, node: Definition) -> bool:
        is_overload = any(ast.unparse(d).endswith("overload") for d in node.decorator_list)
        return not is_overload and not any(part.startswith(("_", "<")) for part in name.split("."))

    nameless = (
        f"{m}:{n.lineno} {name}" for m in modules() for name, n in m.definitions if needs_text(name, n) and not ast.get_docstring(n)
    )
    empty = (str(m) for m in modules() if m.tree.body and not ast.get_docstring(m.tree))
    listed(iter([*nameless, *empty]))


def test_every_function_is_typed() -> None:
    def untyped(node: Function) -> bool:
        a = node.args
        every = [*a.posonlyargs, *a.args, *a.kwonlyargs, *filter(None, [a.vararg, a.kwarg])]
        return node.returns is None or any(x.annotation is None for x in every if x.arg not in {"self", "cls"})

    is_rule = {"rules", "targets"}  # rules and mappings name their operands like mathematics; the decorator types them
    listed(f"{m}:{node.lineno} {name}" for m, name, node in every_function() if m.folder not in is_rule and untyped(node))


def risk(name: str, call: ast.Call) -> str:
    """Name what a call could run that its own text does not show; nothing when it cannot."""
    is_bare = isinstance(call.func, ast.Name)
    if name in {"import_module", "exec_module"} or (
        is_bare and name in {"eval", "exec", "compile", "__import__", "globals", "setattr", "delattr"}
    ):
        return name
    if is_bare and name == "getattr" and not isinstance(call.args[1], ast.Constant):
        return name
    switches = {k.arg: ast.unparse(k.value) for k in call.keywords if k.arg in {"shell", "allow_pickle"}}
    return next((f"{key}={value}" for key, value in switches.items() if value != "False"), "")


def allowed_by(module: Module, what: str) -> tuple[str, str] | None:
    """Return the row that allows `what` in a module."""
    return next((row for row in ALLOWED if str(module).startswith(row[0]) and row[1] == what), None)


def test_nothing_runs_what_a_file_says() -> None:
    risks = [(m, line, what) for m in modules() for line, name, call in calls(m) if (what := risk(name, call))]
    listed(f"{m}:{line} {what}" for m, line, what in risks if not allowed_by(m, what))
    unused = ALLOWED.keys() - {allowed_by(m, what) for m, _, what in risks}
    assert not unused, "rows that allow what nobody does"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("eval(x)", "eval"),
        ("importlib.import_module(x)", "import_module"),
        ("getattr(a, name)", "getattr"),
        ("getattr(a, 'name')", ""),
        ("re.compile(x)", ""),
        ("run(x, shell=True)", "shell=True"),
        ("np.load(x, allow_pickle=False)", ""),
    ],
)
def test_risks_are_told_from_ordinary_calls(text: str, expected: str) -> None:
    call = ast.parse(text, mode="eval").body
    assert isinstance(call, ast.Call)
    assert risk(ast.unparse(call.func).rpartition(".")[2], call) == expected


def test_nothing_unpickles_or_reaches_the_network() -> None:
    listed(f"{m}:{i.line} imports {i.target}" for m, i in every_import() if i.package in NEVER)


def test_the_public_names_are_few_and_exist() -> None:
    names = rewrite_compiler.__all__
    assert len(names) <= PUBLIC_NAMES
    assert list(names) == sorted(names)
    listed(name for name in names if not hasattr(importlib.import_module(ENGINE), name))


@pytest.mark.parametrize("folders", [(ENGINE, *CONTENT), ("tests",), ("benchmarks",)], ids=lambda folders: folders[0])
def test_no_block_stands_twice(folders: tuple[str, ...]) -> None:
    listed(iter(repeated_blocks(sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py")))))


def test_a_repeated_block_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("house.ROOT", tmp_path)
    lines = [f"value_{k} = {k}" for k in range(8)]
    (tmp_path / "a.py").write_text("\n".join(lines))
    (tmp_path / "b.py").write_text(
        "\n".join(["import os", *lines[1:5], "", "# a comment between", "    ".join(["", ""]), *lines[5:7], "end = 0"])
    )
    assert repeated_blocks([tmp_path / "a.py", tmp_path / "b.py"]) == ["b.py:2 repeats a.py:2"]
    (tmp_path / "b.py").write_text("\n".join([*lines[1:5], "end = 0", *lines[5:7]]))
    assert not repeated_blocks([tmp_path / "a.py", tmp_path / "b.py"])


def test_no_two_test_files_have_one_name() -> None:
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]  # which pytest imports without their folders
    assert sorted(names) == sorted(set(names))


def test_every_row_of_the_campaign_names_tests_that_are_there() -> None:
    missing = []
    for row in KEPT:
        path, _, name = row.partition("::")
        if path.endswith("]"):  # a page, by its name in a test's id
            missing += [] if (ROOT / path[:-1]).is_file() else [row]
        elif not (file := ROOT / "tests" / path).is_file() or f"def {name.split('[')[0]}" not in file.read_text():
            missing.append(row)
    assert missing == []


def test_a_row_of_the_campaign_is_not_hidden_by_an_earlier_one() -> None:
    rows = list(KEPT)  # of several rows that a test's id has, the first counts
    assert [(a, b) for n, a in enumerate(rows) for b in rows[n + 1 :] if a in b] == []
