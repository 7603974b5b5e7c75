"""Make the three notebooks: python docs/notebooks/make.py writes their cells, runs them in a kernel, and keeps the outputs.

Needs nbformat, nbclient and ipykernel, which the tests do not: they run the cells of the written notebooks themselves.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).resolve().parent
TOY = re.search(r"```python file=toy\.py\n(.*?)```", (HERE.parent / "tutorial" / "first-accelerator.md").read_text("utf-8"), re.DOTALL)
assert TOY
RULE = '''from flexmatch import Law, Tensor, rule
from flexmatch import ops as o

@rule(grade="E")
def relu_twice(x: Tensor) -> Law:
    """relu(relu(x)) = relu(x)"""
    return o.relu(o.relu(x)), o.relu(x)

@rule(grade="E")
def relu_over_add(x: Tensor, y: Tensor) -> Law:
    """relu(x + y) = relu(x) + relu(y)"""
    return o.relu(o.add(x, y)), o.add(o.relu(x), o.relu(y))
'''

# cells of each notebook: a text, or code after a ">"
NOTEBOOKS: dict[str, list[str]] = {
    "first-model": [
        "# Your first model\n\nWhat does an accelerator take of a digit classifier, and how good does it stay?",
        ">import flexmatch\nfrom rewrite_compiler.apps import find_application\n\napp = find_application('digits_mlp')\n"
        "plan = flexmatch.compile(app.model, ['flexasr'])\nplan",
        "Every offload has the rules behind it:",
        ">for offload in plan.offloads:\n    print(offload.id, offload.nodes, [reason.rule for reason in offload.because])",
        "The whole application on the simulator that comes from the accelerator's specification:",
        ">report = flexmatch.cosimulate(plan, app.data, calibrate=app.calibration, samples=40)\n"
        "print(report.document['metric'], report.document['reference']['value'], report.document['accelerated']['value'])",
        "The chosen program, with its offloads:",
        ">plan.program",
    ],
    "first-rule": [
        "# Your first rule\n\nA rule is an identity between two programs, and is used only when it is proved.",
        f">from pathlib import Path\n\nPath('mine.py').write_text(r'''{RULE}''')\nprint(Path('mine.py').read_text())",
        ">import flexmatch\n\ngood, bad = flexmatch.prove('mine.py').rules\ngood",
        "The second one is false, and the counter-example shows where:",
        ">bad",
        ">print(bad.verdict, '|', bad.counterexample)",
    ],
    "first-accelerator": [
        "# Your first accelerator\n\nThe accelerator of the [tutorial](../tutorial/first-accelerator.md), in one file.",
        f">from pathlib import Path\n\nPath('toy.py').write_text(r'''{TOY[1]}''')\nprint(Path('toy.py').read_text()[:400], '…')",
        "The specification is checked, and the driver is compared with the numerics:",
        ">import flexmatch\n\nverdicts = flexmatch.prove(targets='./toy.py')\nverdicts.mappings[0]",
        ">print(verdicts.ilas[0].decodes_disjoint, [str(m.verdict) for m in verdicts.mappings])",
        "A whole classifier on it:",
        ">from rewrite_compiler.apps import find_application\n\n"
        "app = find_application('digits_mlp')\nplan = flexmatch.compile(app.model, ['./toy.py'])\n"
        "print(plan.counts, plan.device_calls)",
        ">plan",
    ],
}


def main() -> None:
    """Write and run every notebook."""
    for name, cells in NOTEBOOKS.items():
        notebook = nbformat.v4.new_notebook()
        for k, cell in enumerate(cells):
            made = nbformat.v4.new_code_cell(cell[1:]) if cell.startswith(">") else nbformat.v4.new_markdown_cell(cell)
            notebook.cells.append({**made, "id": f"cell-{k}"})
        notebook = nbformat.from_dict(notebook)
        with tempfile.TemporaryDirectory() as folder:
            NotebookClient(notebook, timeout=300, resources={"metadata": {"path": folder}}).execute()
        for cell in notebook.cells:
            cell.get("metadata", {}).clear()
        text = nbformat.writes(notebook)
        (HERE / f"{name}.ipynb").write_text(text.replace(f"{folder}/", "") + "\n", "utf-8")
        print(name, len(cells), "cells")


if __name__ == "__main__":
    main()
