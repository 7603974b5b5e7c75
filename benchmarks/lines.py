"""How long are the accelerator models and the mappings beside those of the 3LA paper?

A line of code has a token that is neither a comment nor part of a docstring; an import over several lines counts as that many.
The paper's counts are of its C++ models and of its mappings; how it counts them it does not say. Ours of models have every
revision and behaviour, the diagnostics of strict simulation and the checks of a design's parameters, which the published
models have not, and are given apart; ours of targets have drivers, numerics, capacities and costs, too.
"""

from __future__ import annotations

import ast
import tokenize
from collections.abc import Iterable
from pathlib import Path

from record import ROOT, Row, finish, options

# accelerator → the paper's lines: of the model, of the mappings
PAPER = {"flexasr": (5600, 186), "hlscnn": (1600, 22), "vta": (2100, 49)}
# files of what the published models do not have, and what it is
APART = {"limits.py": "diagnostics", "revisions.py": "parameters", "vta/config.py": "parameters"}
UNSEEN = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER)


def lines_of_code(path: Path) -> int:
    """Return how many lines of a file have code."""
    tree = ast.parse(path.read_bytes())
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    docstrings = {
        n
        for node in ast.walk(tree)
        if isinstance(node, documented) and ast.get_docstring(node) is not None
        for n in range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)
    }
    with tokenize.open(path) as file:
        tokens = [t for t in tokenize.generate_tokens(file.readline) if t.type not in UNSEEN]
    return len({n for t in tokens for n in range(t.start[0], t.end[0] + 1)} - docstrings)


def import_lines(path: Path) -> int:
    """Return how many lines the imports of a file have."""
    nodes = ast.parse(path.read_bytes()).body
    return sum((n.end_lineno or n.lineno) - n.lineno + 1 for n in nodes if isinstance(n, ast.Import | ast.ImportFrom))


def parts_of(paths: Iterable[Path]) -> dict[str, int]:
    """Return the lines of a model by part: imports, diagnostics, parameters with their checks, and the description itself."""
    found = dict.fromkeys(("imports", "diagnostics", "parameters", "description"), 0)
    for path in paths:
        part = next((what for end, what in APART.items() if path.as_posix().endswith(end)), "description")
        imports = import_lines(path)
        found["imports"] += imports
        found[part] += lines_of_code(path) - imports
    return found


def meanings(paths: Iterable[Path]) -> int:
    """Return how many lines the patterns have: functions that are declared as mappings, with what declares them."""
    count = 0
    for path in paths:
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.FunctionDef) and ast.unparse(node.returns or ast.Constant("")) == "tuple[Tensor, Where]":
                body = node.body[1:] if ast.get_docstring(node) is not None else node.body
                count += node.body[0].lineno - min(node.lineno, *(d.lineno for d in node.decorator_list), node.lineno)
                count += sum((n.end_lineno or n.lineno) - n.lineno + 1 for n in body)
    return count


def files(folder: str, name: str) -> list[Path]:
    """Return the files of an accelerator in a content folder."""
    return sorted([*(ROOT / folder / name).glob("*.py"), *(ROOT / folder).glob(f"*{name}.py")])


def main() -> None:
    """Print the table and write the record."""
    args = options(__doc__ or "", 1).parse_args()
    rows: list[Row] = []
    print(f"{'accelerator':<12}{'model':>8}{'paper':>8}{'ratio':>8}{'patterns':>10}{'paper':>8}{'whole target':>14}  of the model")
    for name, (model, mappings) in PAPER.items():
        parts, patterns = parts_of(files("ila_models", name)), meanings(files("targets", name))
        ours, told = sum(parts.values()), ", ".join(f"{what} {n}" for what, n in parts.items())
        target = sum(map(lines_of_code, files("targets", name)))
        print(f"{name:<12}{ours:>8}{model:>8}{ours / model:>8.2f}{patterns:>10}{mappings:>8}{target:>14}  {told}")
        rows.append(
            {"name": name, "model_lines": ours, "paper_model_lines": model, "pattern_lines": patterns, "paper_mapping_lines": mappings,
             "target_lines": target, "model_parts": parts}
        )  # fmt: skip
    finish("lines", rows, args.json)


if __name__ == "__main__":
    main()
