"""Keys of verdicts: they hold all that a verdict is computed by, and nothing of the machine; kept proofs are not believed blindly."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial, wraps
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import rewrite_compiler
from rewrite_compiler import Law, Rule, Tensor, rule
from rewrite_compiler import ops as o
from rewrite_compiler.cli.main import main
from rewrite_compiler.compile.plan import validation
from rewrite_compiler.prove.calls.call_validation import CallCourt
from rewrite_compiler.prove.certificates import cache, content, sources
from rewrite_compiler.prove.certificates import shipped_certificates as shipped
from rewrite_compiler.prove.certificates.cache import DATE, Cache, court_cache, rule_key
from rewrite_compiler.prove.certificates.judge import judge_cases, judge_rule, rule_case
from rewrite_compiler.prove.certificates.shipped_certificates import certificate_of_operation
from rewrite_compiler.prove.certificates.sources import OUTSIDE_COURT, shipped_courts
from rewrite_compiler.prove.mappings.mappings import code_difference, numeric_sizes
from rewrite_compiler.prove.rules.rules import prove_rule
from rewrite_compiler.rewrite.ruleset import every_rule
from rewrite_compiler.target import find_target, target_names

PACKAGE = Path(rewrite_compiler.__file__).parent
COUNTED = """
from rewrite_compiler.prove.certificates.shipped_certificates import certificate_of_model, certificate_of_operation, certificate_of_rule
from rewrite_compiler.rewrite.ruleset import every_rule
from rewrite_compiler.target import find_target, target_names
targets = [find_target(name) for name in target_names()]
known = [certificate_of_rule(r) for r in every_rule()] + [certificate_of_model(t) for t in targets]
known += [certificate_of_operation(t, name) for t in targets for name in t.mappings]
print(sum(c is not None for c in known), len(known))
"""


@rule(grade="E")
def relu_is_nothing(x: Tensor) -> Law:
    """False, and kept as proved by who can seal"""
    return o.relu(x), x


@rule(grade="E")
def twice(x: Tensor) -> Law:
    """True"""
    return o.relu(o.relu(x)), o.relu(x)


def executed_paths(judge: Callable[[], object]) -> set[Path]:
    """Return the files whose functions run while something is judged."""
    found: set[str] = set()

    def seen(frame: FrameType, event: str, _: Any) -> None:
        found.add(frame.f_code.co_filename)

    sys.setprofile(seen)
    try:
        judge()
    finally:
        sys.setprofile(None)
    return {*map(Path, found)}


def executed(r: Rule) -> set[str]:
    """Return the files of the library whose functions run while a rule is judged."""
    return {f.relative_to(PACKAGE).as_posix() for f in executed_paths(lambda: prove_rule(r)) if f.is_relative_to(PACKAGE)}


@pytest.mark.parametrize("name", ["merge-biases", "max-pool-of-max-pool-1d", "subtract-constant"])
def test_the_key_holds_every_file_that_judging_runs(name: str) -> None:
    (r,) = (r for r in every_rule() if r.name == name)
    files = {f for f in executed(r) if Path(f).parts[0] not in OUTSIDE_COURT}
    assert files <= {*shipped_courts()["rule"].files}
    assert len(files) > 20


def test_the_key_holds_the_court_and_what_is_below_it() -> None:
    rules, targets = (set(shipped_courts()[kind].files) for kind in ("rule", "target"))
    assert {
        "lang/arithmetic.py",
        "ops/elementwise.py",
        "prove/rules/rules.py",
        "prove/rules/rounding_error.py",
        "rewrite/grammar.lark",
        "readings/smt/scalars/floating_point.py",
    } <= rules
    assert rules | {"prove/mappings/mappings.py", "ila/model.py", "readings/native/printer.py", "target/mapping.py"} <= targets
    assert not any(f.startswith(("ila/", "cosim/", "cli/")) for f in rules)


def counted(package: Path) -> list[int]:
    """Return how many certificates count in a copy of the library, and how many there could be."""
    environment = {**os.environ, "PYTHONPATH": str(package.parent), "PYTHONSAFEPATH": "1"}
    done = subprocess.run([sys.executable, "-c", COUNTED], env=environment, cwd=package.parent, capture_output=True, text=True, check=True)
    return [int(n) for n in done.stdout.split()]


FALSE_MAXIMA = {  # edits of what stands below operators, models and numerics alike
    "lang/arithmetic.py": lambda text: text.replace('binary("max", a, b)', 'binary("min", a, b)'),
    "lang/__init__.py": lambda text: f"{text}\nfrom . import arithmetic\narithmetic.maximum = arithmetic.minimum\n",  # imported by no name
}


@pytest.mark.parametrize("edited", FALSE_MAXIMA)
def test_a_maximum_that_is_a_minimum_leaves_nothing_certified(edited: str, tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere" / PACKAGE.name
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("*.pyc.*"))  # what another process compiles just now
    counts, there = counted(copy)
    assert counts == there > len(every_rule())  # neither the folder nor its times are in a key
    text = (copy / edited).read_text("utf-8")
    false = FALSE_MAXIMA[edited](text)
    assert false != text
    (copy / edited).write_text(false, "utf-8")
    assert counted(copy)[0] == 0


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the library, in which the court looks for its sources."""
    shutil.copytree(PACKAGE, tmp_path / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(sources, "ENGINE", tmp_path / PACKAGE.name)
    yield tmp_path / PACKAGE.name
    forget_sources()


def forget_sources() -> None:
    """Let the sources of what judges calls be read again."""
    for asked in (sources.call_court, sources._hash):
        asked.cache_clear()


def test_an_edit_of_what_judges_calls_changes_their_keys_and_one_of_who_asks_does_not(installed: Path) -> None:
    def key() -> str:
        forget_sources()
        return cache.call_key(find_target("vta"), "dense", "t=1, k=16, n=16")

    first = key()
    changed = {}
    for name in ("compile/plan/validation.py", "prove/calls/call_validation.py", "compile/plan/plan.py"):
        file = installed / name
        text = file.read_text("utf-8")
        file.write_text(f"{text}\n# edited\n", "utf-8")
        changed[name] = key() != first
        file.write_text(text, "utf-8")
    assert [name for name, differs in changed.items() if not differs] == ["compile/plan/plan.py"]
    assert key() == first


def test_the_key_of_a_call_holds_every_file_that_judging_it_runs() -> None:
    target = find_target("hvx")
    m = target.mappings["add_2"]
    paths = executed_paths(lambda: validation._in_every_order(CallCourt(target), m, next(iter(numeric_sizes(m))), None))
    content_folders = [PACKAGE / folder for folder in content.CONTENT]
    library = {f for f in paths if f.is_relative_to(PACKAGE) and not any(f.is_relative_to(c) for c in content_folders)}
    library = {f for f in library if f.name != "__init__.py"}  # which hold names only
    files = {name for f in library if Path(name := f.relative_to(PACKAGE).as_posix()).parts[0] not in OUTSIDE_COURT}
    assert len(files) > 30
    assert files <= {*sources.call_court().files}


def test_another_solver_leaves_nothing_certified(monkeypatch: pytest.MonkeyPatch) -> None:
    r = every_rule()[0]
    assert shipped.certificate_of_rule(r) is not None
    key = rule_key(r)
    for name in ("z3-solver", "egglog"):
        with monkeypatch.context() as patch:
            patch.setattr(sources, "version", lambda asked, name=name: "another" if asked == name else "1")
            forget()
            assert shipped.certificate_of_rule(r) is None
            assert rule_key(r) != key
    forget()


def forget() -> None:
    """Let the versions be asked again."""
    for asked in (shipped._shipped, cache._court, sources._court_by_imports):
        asked.cache_clear()


def forged(r: Rule, folder: Path) -> Cache:
    """Return a cache in which a false rule is proved: sealed as by the library itself."""
    (proof,) = judge_cases([rule_case(replace(r, pairs=twice.pairs), None)], Cache(None))
    assert proof["verdict"] == "proved"
    kept = Cache(folder)
    kept.put(rule_case(r, None).key, proof)
    assert kept.get(rule_case(r, None).key) is not None
    return Cache(folder)


def test_a_forged_entry_is_not_believed(tmp_path: Path) -> None:
    kept = forged(relu_is_nothing, tmp_path)
    assert judge_rule(relu_is_nothing, kept).verdict == "refuted"
    assert kept.hits == 0
    assert judge_rule(relu_is_nothing, Cache(tmp_path)).verdict == "refuted"  # which is what is kept now


def test_a_kept_verdict_says_when_it_was_judged_and_is_judged_anew_when_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FLEXMATCH_CACHE", str(tmp_path))
    only = ["prove", "--only", "commute-addition"]
    assert main(only) == 0
    assert "kept" not in capsys.readouterr().out
    assert main(only) == 0
    day = judge_rule(next(r for r in every_rule() if r.name == "commute-addition"), court_cache()).kept
    assert f"kept {day}" in capsys.readouterr().out
    assert main([*only, "--recheck"]) == 0
    assert "kept" not in capsys.readouterr().out


def test_what_is_judged_otherwise_is_said(tmp_path: Path) -> None:
    case = rule_case(relu_is_nothing, None)
    Cache(tmp_path).put(case.key, {**case.judge(), "verdict": "proved"})
    anew = Cache(tmp_path, anew=True)
    (record,) = judge_cases([case], anew)
    assert record["verdict"] == "refuted"
    (said,) = anew.changed_verdicts
    assert said.startswith("relu-is-nothing: proved (kept 20")
    assert said.endswith("), now refuted")
    kept = Cache(tmp_path).get(case.key)
    assert kept is not None
    assert (kept["verdict"], len(kept[DATE])) == ("refuted", len("2026-11-24"))


@pytest.mark.parametrize("name", target_names())
def test_the_statement_of_an_operation_holds_every_file_of_content_that_runs(name: str) -> None:
    target = find_target(name)
    m = next(m for m in target.mappings.values() if m.trials)
    folders = [PACKAGE.parent / folder for folder in content.CONTENT]
    written = executed_paths(lambda: (target.build(**target.values), code_difference(m, target.ila(), m.trials[0])))
    run = {f for f in written if any(f.is_relative_to(folder) for folder in folders)}
    assert len(run) > 3
    assert run <= {*content.content_closure(target.sources)[0]}


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the folders of content, in which statements look for files."""
    for name in content.CONTENT:
        shutil.copytree(PACKAGE.parent / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(content, "_content_folders", lambda: tuple(tmp_path / name for name in content.CONTENT))
    yield tmp_path
    forget_content()


def forget_content() -> None:
    """Let files be read again."""
    for asked in (content.content_hash, content.imports_of, content._files):
        asked.cache_clear()


def hashes(folders: Path) -> dict[str, str]:
    """Return the hash of what each shipped target depends on."""
    forget_content()
    roots = {"vta": "vta/base.py", "flexasr": "flexasr/base.py", "genesys": "genesys/base.py", "hvx": "hvx/base.py", "hlscnn": "hlscnn.py"}
    return {name: content.content_hash((folders / "targets" / file,)) for name, file in roots.items()}


EVERY = {"vta", "flexasr", "genesys", "hvx", "hlscnn"}
EDITS = {
    "targets/vta/conv2d.py": {"vta"},
    "targets/_hlscnn.py": {"hlscnn"},
    "ila_models/vta/alu.py": {"vta"},
    "ila_models/flexasr/numerics.py": {"flexasr"},
    "targets/genesys/table.bin": {"genesys"},  # data of the package
    "ila_models/hvx/tables/sine.csv": {"hvx"},
    "targets/__init__.py": EVERY,
    "ila_models/__init__.py": EVERY,
    "targets/other.py": set(),
}


@pytest.mark.parametrize("file", EDITS)
def test_an_edit_makes_stale_what_depends_on_it_and_nothing_else(file: str, folders: Path) -> None:
    before = hashes(folders)
    place = folders / file
    place.parent.mkdir(exist_ok=True)
    place.write_bytes((place.read_bytes() if place.exists() else b"") + b"\n# edited\n")
    after = hashes(folders)
    assert {name for name in before if before[name] != after[name]} == EDITS[file]


LINKS = (
    "from rewrite_compiler.targets.vta import base",
    "from rewrite_compiler.targets.vta.base import vta",
    "import rewrite_compiler.targets.vta.base",
    "from .vta import base",
    "def late():\n    from rewrite_compiler.targets import vta",
    "import importlib\nbase = importlib.import_module('.'.join(['rewrite_compiler', 'targets', 'vta']))",
    "base = __import__(NAME)",
)


@pytest.mark.parametrize("link", LINKS)
def test_what_a_target_imports_of_another_is_in_its_statement(link: str, folders: Path) -> None:
    target, other = folders / "targets/hlscnn.py", folders / "targets/vta/alu.py"
    target.write_text(f"{target.read_text('utf-8')}\n\n{link}\n", "utf-8")
    before = hashes(folders)
    other.write_text(f"{other.read_text('utf-8')}\n# edited\n", "utf-8")
    after = hashes(folders)
    assert {name for name in before if before[name] != after[name]} == {"vta", "hlscnn"}


def test_what_a_target_imports_of_the_engine_beside_the_court_is_in_its_statement(folders: Path) -> None:
    target = folders / "targets/hlscnn.py"
    assert not any(f.startswith("emit/") for f in content.content_closure([target])[1])
    links = (
        "from rewrite_compiler.emit.words import assemble",
        "from rewrite_compiler import assemble",
        "from flexmatch import assemble",
        "from importlib import import_module\nwords = import_module('rewrite_compiler.emit.words')",
    )
    plain = target.read_text("utf-8")
    for link in links:
        forget_content()
        target.write_text(f"{plain}\n\n{link}\n", "utf-8")
        assert "emit/words.py" in content.content_closure([target])[1]


def test_the_rules_that_a_users_file_imports_are_in_its_statement(tmp_path: Path) -> None:
    target = tmp_path / "mine.py"
    for link in (
        "from rewrite_compiler.rules.normalisation import *",
        "import importlib\nimportlib.import_module('rewrite_compiler.rules.normalisation')",
    ):
        target.write_text(f"{link}\n", "utf-8")
        forget_content()
        assert any(f.name == "normalisation.py" and f.parent.name == "rules" for f in content.content_closure([target])[0]), link


@pytest.mark.parametrize(
    "link",
    [
        "from helper import f",
        "import importlib\nf = importlib.import_module('helper').f",
        "import importlib\nf = importlib.import_module('.helper', package=__package__).f",
        "f = __import__('helper').f",
    ],
)
def test_a_module_beside_a_users_target_is_in_its_statement(link: str, tmp_path: Path) -> None:
    target, helper = tmp_path / "mine.py", tmp_path / "helper.py"
    target.write_text(f"{link}\nfrom rewrite_compiler.target import Target\n", "utf-8")
    helper.write_text("f = 1\n", "utf-8")
    before = content.content_hash((target,))
    helper.write_text("f = 2\n", "utf-8")
    forget_content()
    assert content.content_hash((target,)) != before
    helper.write_text("f = 1\n", "utf-8")
    forget_content()
    assert content.content_hash((target,)) == before


def test_of_installed_packages_only_the_own_one_is_in_a_statement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in {"mine/__init__.py": "", "mine/target.py": "import numbers_library\nfrom . import widths\n",
                       "mine/widths.py": "a = 1\n", "numbers_library/__init__.py": "b = 1\n"}.items():  # fmt: skip
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    root = tmp_path / "mine/target.py"
    forget_content()
    assert {f.name for f in content.content_closure((root,))[0]} > {"target.py", "widths.py"}
    assert tmp_path / "numbers_library/__init__.py" in content.content_closure((root,))[0]  # a folder of the user's own
    monkeypatch.setattr(content, "_installation_folders", lambda: (tmp_path,))
    forget_content()
    files = content.content_closure((root,))[0]
    assert tmp_path / "mine/widths.py" in files
    assert tmp_path / "numbers_library/__init__.py" not in files


def test_a_wrapped_function_of_a_shipped_operation_has_no_certificate() -> None:
    """`functools.wraps` says which function is behind a wrapper, and nothing of what the wrapper does."""
    target = find_target("vta")
    m = target.mappings["dense"]
    assert certificate_of_operation(target, "dense") is not None
    assert m.drive is not None

    def changed(f: Callable[..., Any]) -> Callable[..., Any]:
        return wraps(f)(lambda *arguments, **named: f(*arguments, **named) + 1)

    others = [replace(m, drive=changed(m.drive)), replace(m, drive=partial(changed(m.drive)))]
    targets = [replace(target, mappings={**target.mappings, "dense": other}) for other in others]
    targets += [replace(target, build=changed(target.build))]
    assert [certificate_of_operation(t, "dense") for t in targets] == [None] * 3
