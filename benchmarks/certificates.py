"""Judge the library and write the certificates that ship with it, or compare them with a run that judges all of it.

    python benchmarks/certificates.py
    python benchmarks/certificates.py --check [--jobs 1]

The first keeps the certificates that still count (their statements and the hash of the court say which), takes what this
machine's court has judged with the sources as they are, judges the rest, and writes nothing unless all is proved. The second
believes neither file nor cache: it judges every rule, operation and model, and ends with 1 and the names where the file that
ships has another byte. All processes take from one list, so that none waits for the others before the end. Processor seconds are
those of all processes; the seconds of each part (rules, operations as targets ship, operations at other parameters of theirs) are by
the clock of the process that judges. One process tells the processor seconds of each statement, too: those that take the most follow.
"""

from __future__ import annotations

import argparse
import resource
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from rewrite_compiler.prove.certificates.cache import Cache, court_cache
from rewrite_compiler.prove.certificates.judge import JSON, Case, judge_cases, model_case, rule_case, target_cases
from rewrite_compiler.prove.certificates.shipped_certificates import (
    Certificate,
    certificate_of_model,
    certificate_of_operation,
    certificate_of_record,
    certificate_of_rule,
    certificates_text,
)
from rewrite_compiler.prove.certificates.sources import SHIPPED
from rewrite_compiler.prove.certificates.statements import statement_of_model, statement_of_operation, statement_of_rule
from rewrite_compiler.rewrite.ruleset import every_rule
from rewrite_compiler.target import find_target, target_names

DEAREST = 20  # statements whose processor time is shown
DESIGNS = ("flexasr:sigmoid=3.4", "hlscnn:revision=ext16", "hlscnn:revision=orig")  # beside the designs without parameters


def statements() -> Iterator[tuple[str, Case, Certificate | None]]:
    """Yield every case of the library with the hash of what it says, and the certificate that ships where it counts."""
    yield from ((statement_of_rule(r), rule_case(r, None), certificate_of_rule(r)) for r in every_rule())
    for name in (*target_names(), *DESIGNS):
        target = find_target(name)
        yield statement_of_model(target), model_case(target, name), certificate_of_model(target)
        for case in target_cases(target, name):
            operation = case.message["name"]
            yield statement_of_operation(target, operation), case, certificate_of_operation(target, operation)


def part_of(case: Case) -> str:
    """Return which part of the library a case belongs to, for its processor time."""
    if case.message["kind"] != "mapping":
        return f"{case.message['kind']}s"
    return "operations at other parameters" if case.message["target"] in DESIGNS else "operations"


def processor_seconds() -> float:
    """Return the processor time of this process and of those that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in usages)


def judge_and_report(cases: list[Case], cache: Cache, jobs: int) -> list[JSON]:
    """Return the records of cases, and print their processor time and the seconds of each part; in one process those of each, too."""
    ends, names = [processor_seconds()], list[str]()

    def progress(name: str) -> None:
        print(name, flush=True)
        names.append(name)
        ends.append(processor_seconds())

    records = judge_cases(cases, cache, progress, jobs)
    seconds = Counter[str]()
    for case, record in zip(cases, records, strict=True):
        seconds[part_of(case)] += record.get("seconds", 0.0)
    parts = ", ".join(f"{part} {total:.0f}" for part, total in seconds.items())
    print(f"{len(cases)} judged: {processor_seconds() - ends[0]:.0f} processor seconds; seconds of {parts}", flush=True)
    if jobs == 1:  # the time of other processes is known when they end
        spent = sorted(((end - start, name) for (start, end), name in zip(pairwise(ends), names, strict=True)), reverse=True)
        print(*(f"{total:8.1f} {name}" for total, name in spent[:DEAREST]), sep="\n", flush=True)
    return records


def certificates(cache: Cache, jobs: int, *, anew: bool) -> dict[str, Certificate]:
    """Return the certificates of the library by their statements; `anew`: those that ship are judged, too."""
    library = [(statement, case, None if anew else shipped) for statement, case, shipped in statements()]
    lacking = [(statement, case) for statement, case, shipped in library if shipped is None]
    lacking.sort(key=lambda entry: entry[1].message["kind"] == "rule")  # the shortest last: all processes end together
    by_statement = {}
    for (statement, case), record in zip(lacking, judge_and_report([case for _, case in lacking], cache, jobs), strict=True):
        kind = "operation" if case.message["kind"] == "mapping" else case.message["kind"]
        by_statement[statement] = certificate_of_record(kind, case.name, record)
    return {statement: shipped or by_statement[statement] for statement, _, shipped in library}


def main() -> None:
    """Judge by some processes, write the file or compare it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="judge everything anew, and compare the file that ships byte for byte")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="judge in N processes (default 2)")
    options = parser.parse_args()
    found = certificates(Cache(None) if options.check else court_cache(), options.jobs, anew=options.check)
    unproved = [f"{c.name}: {c.verdict}" for c in found.values() if c.verdict != "proved"]
    if unproved:
        sys.exit("\n".join(unproved))
    text = certificates_text(found)
    if not options.check:
        SHIPPED.write_text(text, "utf-8")
        print(f"{len(found)} certificates in {SHIPPED}")
    elif text != (shipped := SHIPPED.read_text("utf-8")):
        rows = {*text.splitlines()} ^ {*shipped.splitlines()}
        sys.exit("\n".join(["the certificates that ship are not those of this run:", *sorted(rows)]))
    else:
        print(f"{len(found)} certificates as they ship, byte for byte")


if __name__ == "__main__":
    main()
