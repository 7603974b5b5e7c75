"""The lock has every package that the project asks for, with hashes; the bill of materials is that of the lock."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from reliability_sbom import BILL, canonical, inputs, locked, project  # noqa: E402


def test_the_lock_has_every_package_with_hashes() -> None:
    packages = locked()
    assert {canonical(re.split(r"[^\w.-]", r)[0]) for r in inputs()} <= packages.keys()
    assert all(version and hashes for version, hashes in packages.values())


def test_ci_installs_from_the_lock() -> None:
    assert 'install --quiet --require-hashes -r "$work/checkout/requirements.lock"' in (ROOT / ".ci" / "run").read_text("utf-8")


def test_the_bill_of_materials_is_that_of_the_lock() -> None:
    bill, packages = json.loads(BILL.read_text("utf-8")), locked()
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    listed = {c["name"]: (c["version"], [h["content"] for h in c["hashes"]]) for c in bill["components"]}
    assert {canonical(re.split(r"[^\w.-]", r)[0]) for r in project()["dependencies"]} <= listed.keys()
    assert all(packages[name] == found for name, found in listed.items())
    refs = {c["bom-ref"] for c in bill["components"]} | {project()["name"]}
    assert {e["ref"] for e in bill["dependencies"]} == refs
    assert {r for e in bill["dependencies"] for r in e["dependsOn"]} <= refs
