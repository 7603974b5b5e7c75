"""The table of verbs: name, module, one line of help."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Verb:
    """One verb of the command line."""

    module: str
    line: str


VERBS = {
    "compile": Verb("compile", "MODEL --accel NAME: find every offload, write the plan (the bare form does this too)"),
    "demo": Verb("demo", "compile and co-simulate a shipped application"),
    "cosim": Verb("cosim", "PLAN or MODEL --data FILE: run the whole application, offloads bit-exactly"),
    "prove": Verb("prove", "judge rules, mappings and accelerator models"),
    "learn": Verb("learn", "MODEL --accel NAME: laws that models need and the rules lack, proved, as rule code"),
    "lift": Verb("lift", "TARGET: the operations that its model computes, certified and written as a target file"),
    "check": Verb("check", "NAME or FILE: everything that is wrong with a target, model, rule file; accuracy of operations"),
    "explain": Verb("explain", "MODEL NODE: why a node is offloaded or not; MAP.json: what decides a layer; CODE: what an error means"),
    "show": Verb("show", "PLAN: offloads, reasons, accuracy, as text or one HTML page; config; target NAME: resources"),
    "emit": Verb("emit", "trace PLAN, check TRACE: commands of an inference; c PLAN, device|verilog TARGET: C, Verilog; asm FILE: words"),
    "diff": Verb("diff", "OLD NEW MODEL: what differs between two targets: offloads, cycles, bytes, accuracy"),
    "advise": Verb("advise", "MODEL --accel NAME: single changes of an accelerator, ranked by what they save"),
    "repair": Verb("repair", "PLAN --data FILE --within LOSS: the smallest change of number formats that saves the accuracy"),
    "sweep": Verb("sweep", "MODEL --accel NAME --data FILE: accuracy over the accelerator's parameters"),
    "map": Verb("map", "LAYER|MODEL --arch NAME: the best tiles, orders and parallel dimensions, and two opinions on what they cost"),
    "bench": Verb("bench", "MODEL --accel NAME: seconds of each phase and simulator; slower than before?"),
    "list": Verb("list", "accelerators, operations, rules, applications"),
    "reduce": Verb("reduce", "MODEL --check crash|mismatch|not-offloaded: a smaller model with the same problem"),
    "init": Verb("init", "accelerator|rule|app NAME: a skeleton with its own test, in a new folder"),
    "schema": Verb("schema", "DOCUMENT: the JSON schema of what --json writes"),
    "completion": Verb("completion", "bash|zsh|fish: a script that completes verbs, options and names"),
}


def overview() -> str:
    """Return the text of `flexmatch --help`."""
    width = max(map(len, VERBS))
    verbs = "\n".join(f"  {name:<{width}}  {verb.line}" for name, verb in VERBS.items())
    return f"""usage: flexmatch MODEL.onnx --accel NAME
       flexmatch VERB …

What whole applications do on an accelerator: offloads, reasons, accuracy.

{verbs}

flexmatch VERB --help lists a verb's options. Exit codes: 0 done, 1 the answer is no,
2 usage, 3 input refused, 4 out of budget, 5 internal error, 130 interrupted."""
