"""Judge the library and write the certificates that ship with it, or say what has none.

    python benchmarks/certificates.py

What this machine's court has judged with the sources as they are is not judged again. Nothing is written unless all is proved.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from rewrite_compiler.prove.cache import court_cache, statement_of_model, statement_of_operation, statement_of_rule
from rewrite_compiler.prove.court import Case, judged, model_case, rule_case, target_cases
from rewrite_compiler.prove.shipped import FILE, certificate_of_record, document
from rewrite_compiler.rewrite.ruleset import every_rule
from rewrite_compiler.target import find_target, target_names


def statements() -> Iterator[tuple[str, Case]]:
    """Yield every case of the library with the hash of what it says."""
    yield from ((statement_of_rule(r), rule_case(r, None)) for r in every_rule())
    for name in target_names():
        target = find_target(name)
        yield statement_of_model(target), model_case(target, name)
        yield from ((statement_of_operation(target, case.message["name"]), case) for case in target_cases(target, name))


def main() -> None:
    """Judge by two processes, write the file."""
    said = [*statements()]
    records = judged([case for _, case in said], court_cache(), lambda name: print(name, flush=True), jobs=2)
    made = {}
    for (statement, case), record in zip(said, records, strict=True):
        kind = "operation" if case.message["kind"] == "mapping" else case.message["kind"]
        made[statement] = certificate_of_record(kind, case.name, record)
    unproved = [f"{c.name}: {c.verdict}" for c in made.values() if c.verdict != "proved"]
    if unproved:
        sys.exit("\n".join(unproved))
    FILE.write_text(document(made), "utf-8")
    print(f"{len(made)} certificates in {FILE}")


if __name__ == "__main__":
    main()
