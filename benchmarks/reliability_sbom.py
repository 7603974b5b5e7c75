"""What does an installation bring? The bill of materials (CycloneDX 1.6) of the run-time packages, from the lock and installed metadata.

`--inputs` prints the requirements that requirements.lock is made from instead.
"""

from __future__ import annotations

import argparse
import json
import re
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LOCK, BILL = ROOT / "requirements.lock", ROOT / "sbom.cdx.json"
LOCKED_EXTRAS = ("test", "docs", "apps", "scale")


def project() -> dict[str, Any]:
    """Return the project's table of pyproject.toml."""
    return dict(tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"])


def inputs() -> list[str]:
    """Return what the lock is made from: the dependencies, and those of the extras that CI installs."""
    p = project()
    extras = [r for name in LOCKED_EXTRAS for r in p["optional-dependencies"].get(name, ()) if not r.startswith(p["name"])]
    return list(dict.fromkeys([*p["dependencies"], *extras]))


def canonical(name: str) -> str:
    """Return a package's name as indexes spell it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def locked() -> dict[str, tuple[str, list[str]]]:
    """Return version and sha256 hashes of every locked package."""
    packages: dict[str, tuple[str, list[str]]] = {}
    for block in re.split(r"\n(?=\S)", LOCK.read_text("utf-8")):
        head = re.match(r"([\w.-]+)==([^\s;\\]+)", block)
        if head:
            packages[canonical(head[1])] = head[2], re.findall(r"sha256:([0-9a-f]{64})", block)
    return packages


def needed(requirements: list[str]) -> dict[str, list[str]]:
    """Return the run-time packages, each with those it needs, as the installed metadata tell (extras and other systems left out)."""
    dependencies: dict[str, list[str]] = {}
    work = [canonical(re.split(r"[^\w.-]", r)[0]) for r in requirements]
    while work:
        name = work.pop()
        if name in dependencies:
            continue
        try:
            wanted = distribution(name).requires or []
        except PackageNotFoundError:  # of another system
            continue
        plain = [canonical(re.split(r"[^\w.-]", r)[0]) for r in wanted if "extra ==" not in r and "platform" not in r]
        dependencies[name] = sorted(plain)
        work.extend(plain)
    return dict(sorted(dependencies.items()))


def bill() -> dict[str, Any]:
    """Return the document."""
    p, packages = project(), locked()
    tree = needed(p["dependencies"])
    parts = [
        {
            "type": "library", "bom-ref": f"pkg:pypi/{n}@{packages[n][0]}", "name": n, "version": packages[n][0],
            "purl": f"pkg:pypi/{n}@{packages[n][0]}", "hashes": [{"alg": "SHA-256", "content": h} for h in packages[n][1]],
        }
        for n in tree if n in packages
    ]  # fmt: skip
    refs = {part["name"]: part["bom-ref"] for part in parts}
    first = sorted(refs[canonical(re.split(r"[^\w.-]", r)[0])] for r in p["dependencies"])
    component = {
        "type": "application",
        "bom-ref": p["name"],
        "name": p["name"],
        "version": p["version"],
        "licenses": [{"license": {"id": p["license"]}}],
    }
    edges = [{"ref": refs[n], "dependsOn": [refs[m] for m in required if m in refs]} for n, required in tree.items() if n in refs]
    return {
        "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "metadata": {"component": component}, "components": parts,
        "dependencies": [{"ref": p["name"], "dependsOn": first}, *edges],
    }  # fmt: skip


def text() -> str:
    """Return the document as its file holds it."""
    return json.dumps(bill(), indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    """Write the bill, or print the inputs of the lock."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", action="store_true", help="print what requirements.lock is made from")
    if parser.parse_args().inputs:
        print("\n".join(inputs()))
        return
    BILL.write_text(text(), "utf-8")
    print(f"{len(bill()['components'])} components in {BILL.name}")


if __name__ == "__main__":
    main()
