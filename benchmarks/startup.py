"""How long the first answer takes: `flexmatch --help` beside a Python that does nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from record import Row, finish, options, spread

FLEXMATCH = str(Path(sys.executable).parent / "flexmatch")
COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "import flexmatch": [sys.executable, "-c", "import flexmatch"],
    "flexmatch --help": [FLEXMATCH, "--help"],
    "flexmatch --version": [FLEXMATCH, "--version"],
}


def once(command: list[str]) -> tuple[float, float]:
    """Run a command and return its wall and its processor seconds."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with exit code {process.returncode}")
    return wall, usage.ru_utime + usage.ru_stime


def measure(runs: int) -> list[Row]:
    """Run all commands in turn, so that a busy moment meets each of them; the first round only warms the file cache."""
    rounds = [{name: once(command) for name, command in COMMANDS.items()} for _ in range(runs + 1)][1:]
    return [
        {
            "name": name,
            "runs": runs,
            "wall_seconds": spread([r[name][0] for r in rounds]),
            "cpu_seconds": spread([r[name][1] for r in rounds]),
        }
        for name in COMMANDS
    ]


def main() -> None:
    """Run the command line."""
    args = options(__doc__ or "", runs=20).parse_args()
    rows = measure(args.runs)
    print(f"{'command':26}{'wall median':>14}{'quartiles':>18}{'CPU median':>14}")
    for row in rows:
        wall, cpu = row["wall_seconds"], row["cpu_seconds"]
        assert isinstance(wall, dict)
        assert isinstance(cpu, dict)
        print(f"{row['name']:26}{wall['median']:12.3f} s{wall['low']:9.3f}–{wall['high']:.3f} s{cpu['median']:12.3f} s")
    finish("startup", rows, args.json)


if __name__ == "__main__":
    main()
