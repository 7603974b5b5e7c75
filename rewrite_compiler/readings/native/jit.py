"""Machine code from LLVM text, compiled for the host processor, with an on-disk cache of object files.

An object file is code, so the folder is private, an entry carries a digest of its key and contents, and an entry that does
not match is compiled again.
"""

from __future__ import annotations

import ctypes
import hashlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import llvmlite
import llvmlite.binding as llvm

from ...disk_cache import DiskCache, private_cache_folder

LARGE_TEXT = 1 << 20  # characters: beyond, optimising takes seconds (attention of FlexASR: 8 s of 2.4 MB, 0.3 s without)
# at level 1: scalars in registers, each value computed once, branches that are known taken; half of the time that -O1 takes
LIGHT = 1
PASSES = llvm.ModulePassManager
LIGHT_PASSES = (
    PASSES.add_sroa_pass, PASSES.add_simplify_cfg_pass, PASSES.add_new_gvn_pass, PASSES.add_jump_threading_pass,
    PASSES.add_instruction_combine_pass, PASSES.add_ipsccp_pass, PASSES.add_simplify_cfg_pass, PASSES.add_instruction_combine_pass,
)  # fmt: skip
EMPTY = 'source_filename = "loaded"\n'


@dataclass
class Counts:
    """Numbers of modules that were compiled and that came from the cache, in this process."""

    compiled: int = 0
    loaded: int = 0
    rebuilt: int = 0  # entries that were there and could not be trusted


counts = Counts()


@lru_cache(maxsize=1)
def host() -> tuple[str, frozenset[str]]:
    """Return the processor's name and its features."""
    features = llvm.get_host_cpu_features()
    return llvm.get_host_cpu_name(), frozenset(name for name, is_supported in features.items() if is_supported)


def extra_features() -> tuple[str, ...]:
    """Return further processor features: without "fast-dpwssd" LLVM splits "vpdpwssd" in two, a third slower in our loops."""
    return ("+fast-dpwssd",) if "avx512vnni" in host()[1] else ()


@lru_cache(maxsize=1)
def _features() -> str:
    """Return the processor's features and the further ones, in LLVM's syntax."""
    return ",".join((llvm.get_host_cpu_features().flatten(), *extra_features()))


def _machine(level: int) -> Any:
    """Return a new target machine: an engine owns the one it is given."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = _features()
    return llvm.Target.from_default_triple().create_target_machine(cpu=host()[0], features=features, opt=level)


@lru_cache(maxsize=4096)
def compile_text(text: str, level: int = 2) -> tuple[Any, int]:
    """Return the engine, which owns the code, and the address of `run`, from the cache or compiled; equal texts are compiled once."""
    key, level = key_of(text, level)
    cached = cached_code(key, level)
    if cached is not None:
        return cached
    counts.compiled += 1
    stored = _compile_object(text, level)
    DiskCache(private_cache_folder("objects")).put(key, stored)
    return _load_object(stored, level)


def cached_code(key: str, level: int) -> tuple[Any, int] | None:
    """Return the engine and the address of `run` of a cached object; None where there is none, or it is damaged."""
    cache = DiskCache(private_cache_folder("objects"))
    stored = cache.get(key)
    counts.rebuilt += cache.damaged
    if stored is None:
        return None
    counts.loaded += 1
    return _load_object(stored, level)


def key_of(text: str, level: int) -> tuple[str, int]:
    """Return the cache key of a text's object, and the level that it is optimised to: 0 for large texts."""
    level = level if len(text) < LARGE_TEXT else 0
    return _key(text, level), level


def function_of(text: str, level: int, operands: int) -> tuple[Any, Any]:
    """Return the engine and `run` as a function of so many pointers; the function keeps its code alive, wherever it is held."""
    engine, address = compile_text(text, level)
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * operands)(address)
    function.engine = engine  # type: ignore[attr-defined]
    return engine, function


def _key(text: str, level: int) -> str:
    """Return the digest of everything that the object depends on."""
    name, features = host()
    parts = (
        llvmlite.__version__,
        str(llvm.llvm_version_info),
        llvm.get_default_triple(),
        "with data layout",
        name,
        ",".join((*sorted(features), *extra_features())),
        f"{level} {[add.__name__ for add in LIGHT_PASSES] if level == LIGHT else []}",
        text,
    )
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _compile_object(text: str, level: int) -> bytes:
    machine = _machine(level)
    module = llvm.parse_assembly(text)
    module.data_layout, module.triple = str(machine.target_data), machine.triple  # without, passes make integers of 40 bits
    module.verify()
    options = llvm.create_pipeline_tuning_options(level)
    options.loop_vectorization = options.slp_vectorization = level > 1
    passes = llvm.create_pass_builder(machine, options)
    manager = passes.getModulePassManager()
    if level == LIGHT:
        manager = llvm.create_new_module_pass_manager()
        for add in LIGHT_PASSES:
            add(manager)
    manager.run(module, passes)
    return bytes(machine.emit_object(module))


def _load_object(stored: bytes, level: int) -> tuple[Any, int]:
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(EMPTY), _machine(level))
    engine.add_object_file(llvm.ObjectFileRef.from_data(stored))
    engine.finalize_object()
    return engine, int(engine.get_function_address("run"))
