"""Write every file of the catalogue: python tests/bad_inputs/write.py FOLDER (one folder a case, with the command that gets it)."""

from __future__ import annotations

import sys
from pathlib import Path

from catalogue import CASES


def write(target: Path) -> int:
    """Write the cases and return how many there are."""
    for name, case in CASES.items():
        folder = target / f"{case.row:03}_{name}"
        folder.mkdir(parents=True)
        case.write(folder)
        if case.command:
            (folder / "COMMAND").write_text(repr(["flexmatch", *case.command]), "utf-8")
    return len(CASES)


if __name__ == "__main__":
    print(write(Path(sys.argv[1])), "cases written")
