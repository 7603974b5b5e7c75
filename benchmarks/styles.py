"""How many other spellings of each application of Table 2 get the offloads of the application itself?

The applications are the architectures of the gallery; with --models, exported ones of a folder (.onnx, .onnx.xz). A spelling
that changes what is offloaded is shown with what is missing and what is new, and the script ends with 1.
"""

from __future__ import annotations

import json
import lzma
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

from record import Row, finish, options

from rewrite_compiler.apps import GALLERY
from rewrite_compiler.study.checks.perturb import styles
from rewrite_compiler.target import find_target


def models(folder: Path | None, scratch: Path) -> Iterator[Path]:
    """Yield the models as files: the gallery's, or those of a folder, unpacked."""
    for a in GALLERY if folder is None else ():
        built = scratch / f"{a.name}.onnx"
        built.write_bytes(a.build().SerializeToString())
        yield built
    for path in sorted((*folder.glob("*.onnx"), *folder.glob("*.onnx.xz"))) if folder is not None else ():
        if path.suffix == ".onnx":
            yield path
            continue
        unpacked = scratch / path.stem
        unpacked.write_bytes(lzma.decompress(path.read_bytes()))
        yield unpacked


def measure(path: Path, target: str, variants: int) -> Row:
    """Return how many spellings of a model get its own offloads."""
    started, changed = process_time(), []
    applied: Counter[str] = Counter()
    for style in styles(path, find_target(target), range(variants)):
        applied.update(style.applied)
        if not style.is_same:
            changed.append({"seed": style.seed, "missing": list(map(str, style.missing)), "added": list(map(str, style.added))})
    equal = variants - len(changed)
    row: Row = {"name": path.stem, "target": target, "variants": variants, "same": equal, "changed": changed, "applied": dict(applied)}
    return {**row, "cpu_seconds": process_time() - started}


def recorded(path: Path | None, target: str, variants: int) -> list[Row]:
    """Return the rows of an earlier run that was ended, so that the next one goes on after them."""
    if path is None or not path.is_file():
        return []
    rows = json.loads(path.read_text())["rows"]
    return [row for row in rows if (row["target"], row["variants"]) == (target, variants)]


def main() -> None:
    """Run the command line."""
    parser = options(__doc__ or "", runs=50)
    parser.add_argument("--target", default="flexasr", help="the accelerator (default: %(default)s)")
    parser.add_argument("--only", default="", metavar="NAME", help="models whose name has this in it")
    parser.add_argument("--models", type=Path, metavar="DIR", help="a folder of models, in place of the gallery")
    args = parser.parse_args()
    rows = recorded(args.json, args.target, args.runs)
    recorded_names = {row["name"] for row in rows}
    changed = any(row["changed"] for row in rows)
    with TemporaryDirectory() as scratch:
        for path in models(args.models, Path(scratch)):
            if args.only not in path.stem or path.stem in recorded_names:
                continue
            rows.append(row := measure(path, args.target, args.runs))
            print(f"{row['name']!s:32}{row['same']!s:>5} of {args.runs} spellings get the same offloads", flush=True)
            for c in row["changed"]:  # type: ignore[attr-defined]
                changed = True
                print(f"    seed {c['seed']}: missing {c['missing'][:2]}, new {c['added'][:2]}")
            finish("styles", rows, args.json)
    raise SystemExit(int(changed))


if __name__ == "__main__":
    main()
