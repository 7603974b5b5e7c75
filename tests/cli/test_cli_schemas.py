"""Every document is what its published schema says, and every key of a real one is in it; completion in a real shell."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from command import flexmatch, refused

from rewrite_compiler.cli.schemas import ROWS, schema_of
from rewrite_compiler.cli.verb_table import VERBS

ROOT = Path(__file__).resolve().parents[2]
COMMANDS: dict[str, tuple[str, ...]] = {
    "plan": ("app.onnx", "--accel", "flexasr", "-o", "plan"),
    "calibrated plan": ("show", "ready.json"),
    "cosim": ("cosim", "ready.json", "--data", "test.npz", "--samples", "4"),
    "prove": ("prove", "--only", "add-zero-bias"),
    "explain": ("explain", "F101"),
    "explain node": ("explain", "ready.json", "gemm0"),
    "list": ("list",),
    "config": ("show", "config"),
    "target": ("show", "target", "flexasr"),
    "ila": ("show", "ila", "hlscnn"),
    "egraph": ("show", "egraph", "app.onnx", "--accel", "flexasr", "--around", "gemm0"),
    "diff": ("diff", "hlscnn", "hlscnn:revision=ext16", "app.onnx"),
    "advise": ("advise", "app.onnx", "--accel", "flexasr"),
    "bench": ("bench", "app.onnx", "--accel", "flexasr", "--runs", "1", "--data", "test.npz", "--samples", "2", "--tier", "arrays"),
    "schema": ("schema", "plan"),
    "completion": ("completion", "fish"),
    "init": ("init", "app", "waves"),
    "map": ("map", "gemm:m=4,n=4,k=4", "--arch", "edge", "--budget", "60"),
    "space": ("map", "gemm:m=4,n=4,k=4", "--arch", "edge", "--space-only"),
    "algorithms": ("map", "conv:k=2,c=2,p=2,q=2,r=3,s=3", "--arch", "edge", "--budget", "60", "--algorithms"),
    "variation": ("map", "gemm:m=4,n=4,k=4", "--arch", "edge", "--budget", "60", "--over", "L2.width=1,8"),
}


def closed(schema: Any) -> Any:
    """Return a schema that allows no key it does not name."""
    if isinstance(schema, list):
        return [closed(x) for x in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: closed(value) for key, value in schema.items()}
    return {**made, "additionalProperties": False} if "properties" in made and "type" in made else made


@pytest.mark.parametrize("name", COMMANDS)
def test_a_real_document_is_what_its_schema_says(name: str, folder: Path) -> None:
    answer = flexmatch(*COMMANDS[name], "--json", "-")
    assert (answer.code, answer.err) == (0, "")
    document = json.loads(answer.out)
    kind = document["schema"].removeprefix("flexmatch.").partition("/")[0]
    jsonschema.validate(document, closed(schema_of(kind)), jsonschema.Draft202012Validator)


@pytest.mark.parametrize("name", ROWS)
def test_a_schema_is_one(name: str) -> None:
    answer = flexmatch("schema", name)
    assert (answer.code, answer.err) == (0, "")
    definition = json.loads(answer.out)
    jsonschema.Draft202012Validator.check_schema(definition)
    assert definition["properties"]["schema"] == {"const": f"flexmatch.{name}/1"}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"schema": "flexmatch.other/1"}, definition, jsonschema.Draft202012Validator)


def test_a_document_that_is_not_like_its_schema_is_told(folder: Path) -> None:
    plan = json.loads(Path("ready.json").read_text("utf-8"))
    for wrong in ({"counts": {"flexasr": {"linear": -1}}}, {"calibration": 3}, {"host": [{"node": "a"}]}, {"limited": "no"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**plan, **wrong}, schema_of("plan"), jsonschema.Draft202012Validator)
    jsonschema.validate({**plan, "calibration": None, "news": 1}, schema_of("plan"), jsonschema.Draft202012Validator)


def test_every_schema_that_the_source_names_is_published() -> None:
    sources = [p.read_text("utf-8") for p in (ROOT / "rewrite_compiler").rglob("*.py") if p.name != "schemas.py"]
    named = set(re.findall(r'"flexmatch\.(\w+)/1"', "\n".join(sources)))
    assert named == ROWS.keys()


def test_an_unknown_document() -> None:
    said = f'error[F203]: there is no document called "plam"\n  help: did you mean "plan"? documents: {", ".join(ROWS)}'
    refused(flexmatch("schema", "plam"), 2, said)


def completed(folder: Path, *words: str) -> list[str]:
    """Return what bash offers for the last of some words."""
    script = flexmatch("completion", "bash").out
    ask = f'COMP_WORDS=({" ".join(words)}); COMP_CWORD={len(words) - 1}; _flexmatch; printf "%s\\n" "${{COMPREPLY[@]}}"'
    run = subprocess.run(["bash", "-c", f"{script}\n{ask}"], cwd=folder, capture_output=True, text=True, check=True)
    assert run.stderr == ""
    return run.stdout.split()


def test_bash_completes_verbs_options_accelerators_values_and_rule_files(tmp_path: Path) -> None:
    for name in ("mine.py", "notes.txt", "app.onnx"):
        (tmp_path / name).touch()
    assert set(completed(tmp_path, "flexmatch", "''")) >= {*VERBS, "app.onnx"}
    assert completed(tmp_path, "flexmatch", "cosi") == ["cosim"]
    assert completed(tmp_path, "flexmatch", "cosim", "--samp") == ["--samples"]
    assert completed(tmp_path, "flexmatch", "app.onnx", "--requ") == ["--require-offload"]
    assert completed(tmp_path, "flexmatch", "compile", "--accel", "fl") == ["flexasr"]
    assert completed(tmp_path, "flexmatch", "cosim", "--tier", "or") == ["oracle"]
    assert completed(tmp_path, "flexmatch", "compile", "--rules", "''") == ["mine.py"]
    assert completed(tmp_path, "flexmatch", "explain", "F10")[:2] == ["F100", "F101"]
    assert completed(tmp_path, "flexmatch", "schema", "pl") == ["plan"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_other_shells_name_everything(shell: str, tmp_path: Path) -> None:
    script = flexmatch("completion", shell).out
    prefix = {"zsh": "--", "fish": "-l "}[shell]
    for word in (*VERBS, "flexasr", "hlscnn", "vta", f"{prefix}accel", f"{prefix}require-offload", "F101", "oracle"):
        assert word in script
    if shutil.which(shell):  # where the shell is installed, it reads the script, too
        (tmp_path / "script").write_text(script, "utf-8")
        run = subprocess.run([shell, "-n", tmp_path / "script"], capture_output=True, text=True, check=False)
        assert (run.returncode, run.stderr) == (0, "")


def test_an_unknown_shell() -> None:
    said = 'error[F203]: the shell must be one of bash, zsh, fish, not "tcsh"\n  help: flexmatch completion --help lists the options'
    refused(flexmatch("completion", "tcsh"), 2, said)
