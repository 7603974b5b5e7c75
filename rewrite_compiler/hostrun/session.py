"""Sessions: models in onnxruntime, run on arrays by name; the only place where onnxruntime is imported."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import BudgetError, InputError, UsageError
from ..ir.program import Data
from .deadlines import Deadlines
from .sign_conversion import largest_pair, multiplies_codes, with_unsigned_codes

# from 1.32 on it writes an id of the machine below the home and sends events, unless this is set before it is imported
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

# onnxruntime's names of element types → ours
KINDS = {
    "float": "float32",
    "double": "float64",
    "float8e4m3fn": "float8e4m3",
    **{n: n for n in ("float16", "bfloat16", "float8e5m2", "bool", "string", "int4", "uint4")},
    **{f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
FATAL = 4  # what it refuses is told as a sentence
ARENA_AS_REQUESTED = 1  # an arena grows by what is asked for, not to the next power of two
RAISE_TIME_LIMIT = "give it more with --limits host_seconds=N"
FREE_RESOURCES = "free memory, raise the limits of this process (ulimit -v, ulimit -u), or give fewer --threads"
# what it says where the machine is the reason, not the model
OUT_OF_RESOURCES = re.compile(
    "pthread_create failed|[Cc]annot allocate memory|bad.alloc|Failed to allocate memory|Resource temporarily unavailable"
)
# real operators between a DequantizeLinear and a QuantizeLinear stay real: fused ones round otherwise, and on some processors saturate
EXACT = {"session.disable_quant_qdq": "1"}
WEIGHTS_BESIDE = "session.model_external_initializers_file_folder_path"  # of a model in memory


DEADLINES = Deadlines()
_SHARING = threading.Lock()
_shared: list[bool] = []  # whether there is memory that sessions share, once one has asked


def _has_shared_memory() -> bool:
    """Tell whether onnxruntime has memory that sessions share: made by the first that asks, grown by what is asked for."""
    import onnxruntime as ort

    with _SHARING:
        if not _shared:
            try:
                cpu = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
                ort.create_and_register_allocator(cpu, ort.OrtArenaCfg(0, ARENA_AS_REQUESTED, -1, -1))
                _shared.append(True)
            except Exception:  # whatever it says, each session then has memory of its own
                _shared.append(False)
    return _shared[0]


@dataclass(frozen=True)
class Port:
    """An input or output of a model: name, element type and shape, with None for an open extent."""

    name: str
    dtype: str
    shape: tuple[int | None, ...]

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join('?' if n is None else str(n) for n in self.shape)}]"

    def accepts(self, x: Data) -> bool:
        """Tell whether an array has this port's type and shape."""
        kind = "string" if x.dtype.kind in "OUS" else str(x.dtype)
        return kind == self.dtype and x.ndim == len(self.shape) and all(n in (None, m) for n, m in zip(self.shape, x.shape, strict=True))


class Session:
    """A model loaded on the host, with settings under which equal inputs give equal bits, and codes the same on every processor."""

    def __init__(
        self, model: bytes | Path, *, threads: int = 1, name: str = "the model", is_part: bool = False, is_exact: bool = True,
        is_optimised: bool = True, folder: Path | None = None,
    ) -> None:  # fmt: skip
        """Load a model from a file, or from bytes, whose external weights are in `folder`.

        `threads` is the number of threads inside one operator; operators run one after the other. A part of a model uses the
        memory that all parts share, which otherwise each would keep. What is not exact has onnxruntime's own settings for codes,
        what is not optimised runs as it is written.

        Raises:
            UsageError: the number of threads is not positive.
            InputError: onnxruntime cannot run the model.
            BudgetError: the machine lacks memory or threads.
        """
        if threads < 1:
            raise UsageError("F203", f"Number of threads must be positive, not {threads}")
        self.name, self.refusal = name, ""
        source, settings = _loadable(model, folder, is_exact)
        with translated_errors("F162", f"{name} cannot be run on the host"):
            import onnxruntime

            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = threads
            options.inter_op_num_threads = 1
            options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
            options.use_deterministic_compute = True
            options.log_severity_level = FATAL
            if not is_optimised:
                options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
            for key, value in settings.items():
                options.add_session_config_entry(key, value)
            if is_part and _has_shared_memory():
                options.add_session_config_entry("session.use_env_allocators", "1")
            arguments = {"providers": ["CPUExecutionProvider"], "enable_fallback": 0}  # else it prints, and tries the same again
            self._session = onnxruntime.InferenceSession(source, options, **arguments)
        self.inputs = tuple(_port(i) for i in self._session.get_inputs())
        self.outputs = tuple(_port(o) for o in self._session.get_outputs())

    def run(self, inputs: Mapping[str, Data], outputs: Sequence[str] | None = None, *, seconds: float = 0) -> dict[str, Data]:
        """Return outputs (all, or the listed ones) by name.

        With `seconds` greater than 0 the run has that time limit. A list of maps, one a sample, becomes the matrix of their values.

        Raises:
            InputError: an input is missing, unknown or of a wrong type, an output is unknown, or the run fails.
            BudgetError: the run takes longer than `seconds`, or the machine lacks memory.
        """
        output_names = [o.name for o in self.outputs] if outputs is None else list(outputs)
        self._check(inputs, output_names)
        with translated_errors("C107", f"{self.name} failed on the host"), _time_limit(seconds, self.name) as options:
            results = self._session.run(output_names, dict(inputs), options)
        return dict(zip(output_names, map(_tensor, results), strict=True))

    def _check(self, inputs: Mapping[str, Data], outputs: Sequence[str]) -> None:
        for port in self.inputs:
            if port.name not in inputs:
                raise InputError("C100", f'{self.name} needs the input "{port.name}" of type {port}')
            x = np.asarray(inputs[port.name])
            if not port.accepts(x):
                raise InputError(
                    "C100", f'Input "{port.name}" of {self.name} must be {port}, not {x.dtype}[{", ".join(map(str, x.shape))}]'
                )
        for kind, requested, ports in (("input", inputs, self.inputs), ("output", outputs, self.outputs)):
            names = {p.name for p in ports}
            for name in requested:
                if name not in names:
                    port_names = ", ".join(f'"{p.name}"' for p in ports)
                    raise InputError("C100", f'{self.name} has no {kind} called "{name}"', help=f"its {kind}s are {port_names or 'none'}")


def _loadable(model: bytes | Path, folder: Path | None, is_exact: bool) -> tuple[bytes | str, dict[str, str]]:
    """Return what onnxruntime loads and the settings for it; exact: so that products of codes are."""
    settings = EXACT if is_exact else {}
    if isinstance(model, Path):
        data = model.read_bytes() if is_exact else b""
        if not multiplies_codes(data):
            return os.fspath(model), settings
        folder, model = model.parent, data
    rewritten = with_unsigned_codes(model) if is_exact and multiplies_codes(model) else model
    return rewritten, settings | ({WEIGHTS_BESIDE: os.fspath(folder)} if folder else {})


def reference(
    path: str | Path, content: bytes | None = None, *, threads: int = 1, is_exact: bool = True, is_optimised: bool = True
) -> Session:  # fmt: skip
    """Load a source model from its file, external weights included; one that only onnxruntime's optimiser refuses, without it.

    What the optimiser refused is the `refusal` of the session. `content` stands for the bytes of the file.

    Raises:
        UsageError: there is no such file, or it is not a regular one.
        InputError: onnxruntime cannot run the model.
    """
    file = Path(path)
    if not file.is_file():
        raise UsageError("F101", "there is no such file" if not file.exists() else "a model must be a regular file", place=str(file))
    model, folder = (file, None) if content is None else (content, file.parent)
    try:
        return Session(model, threads=threads, name=file.name, is_exact=is_exact, is_optimised=is_optimised, folder=folder)
    except InputError as refused:
        try:
            session = Session(model, threads=threads, name=file.name, is_exact=is_exact, is_optimised=False, folder=folder)
        except InputError:
            raise refused from None
        session.refusal = refused.problem.sentence
        return session


@lru_cache
def saturates() -> bool:
    """Tell whether onnxruntime's own products of unsigned and signed codes saturate on this processor, which then lacks VNNI."""
    model, operands, expected = largest_pair()
    (result,) = Session(model, is_exact=False).run(operands).values()
    return bool(result.item() != expected)


def _tensor(result: Any) -> Data:
    """Return a result as an array; the columns of maps are in the order of their keys."""
    if not isinstance(result, list) or not all(isinstance(sample, dict) for sample in result):
        return result  # type: ignore[no-any-return]
    return np.asarray([[sample[key] for key in sorted(sample)] for sample in result], np.float32)


def _port(info: Any) -> Port:
    kind = str(info.type).removeprefix("tensor(").removesuffix(")")
    shape = tuple(n if isinstance(n, int) and n >= 0 else None for n in info.shape)
    return Port(str(info.name), KINDS.get(kind, kind), shape)


@contextmanager
def _time_limit(seconds: float, name: str) -> Iterator[Any]:
    """Yield options of a run that ends after some seconds, between two operators."""
    if not seconds:
        yield None
        return
    import onnxruntime

    options = onnxruntime.RunOptions()
    options.log_severity_level = FATAL

    def end() -> None:
        options.terminate = True

    deadline = DEADLINES.add(seconds, end)
    try:
        yield options
    except Exception:
        if options.terminate:
            raise BudgetError("C107", f"{name} must run on the host within {seconds:g} seconds", help=RAISE_TIME_LIMIT) from None
        raise
    finally:
        DEADLINES.cancel(deadline)


@contextmanager
def translated_errors(code: str, sentence: str) -> Iterator[None]:
    """Translate onnxruntime's exceptions to refusals of one sentence.

    Raises:
        BudgetError: the machine lacks memory or threads.
        InputError: anything else that onnxruntime refuses.
    """
    try:
        yield
    except (MemoryError, ImportError, BudgetError):
        raise
    except Exception as error:  # onnxruntime's own kinds share no base class but Exception
        if OUT_OF_RESOURCES.search(str(error)):
            raise BudgetError("X101", f"{sentence}: there is no memory, or no thread, left for it", help=FREE_RESOURCES) from None
        raise InputError(code, f"{sentence}: {_message(error)}") from None


def _message(error: Exception) -> str:
    """Return onnxruntime's message without its codes, on one line."""
    text = " ".join(str(error).split())
    if text.startswith("[ONNXRuntimeError]"):
        text = text.split(" : ", 3)[-1]
    return text.rstrip(".") or type(error).__name__
