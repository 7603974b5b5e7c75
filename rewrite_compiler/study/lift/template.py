"""The text of target files that are lifted: head, declarations of operations, tail."""

HEAD = '''"""Operations of {name}, lifted from its model."""

import math
from dataclasses import replace
from pathlib import Path
from runpy import run_path

from rewrite_compiler import IsConstant, Tensor, Where
from rewrite_compiler import ops as o
from rewrite_compiler.lang import Fixed, array, fold, lift, maximum, minimum, reduce_max, reduce_sum, select, wrap
from rewrite_compiler.rewrite import Ints
from rewrite_compiler.sched.nests.declaration import configure
from rewrite_compiler.target import Target, find_target


def fixed(bits):
    """Return the format of so many bits with the finest step in which a magnitude fits."""
    return lambda largest: Fixed(bits, bits - 1 - math.frexp(largest)[1])


def accelerate(target):
    """Give a target its operations."""
'''
BODY = '''
    @target.accelerates(axes="{axes}", {formats}, trials={trials}{whole})
    def {name}({parameters}):
        """{doc}"""
        return {meaning}, Where({guard})

    @{name}.numerics
    def {name}_codes({arguments}):
        """What {instructions} leaves in memory, with every rounding, clamp and wrap in its place."""
{registers}
        def code({index}):
            return {code}

        return array(code, ({shape}))
{driver}'''
SHIFT = """        shift = f["x"].fraction + f["w"].fraction - f["y"].fraction
"""
CONFIGURED = """
    configure(
        target, {name}, "{instruction}", nest={nest}, loops="{loops}", steps="{steps}", words={words}, initial="{initial}",
        places={places},
        registers={registers},
    )
"""
TAIL = '''

def bare():
    """Return the accelerator without the operations that it declares."""
    {declared}
    return replace(declared, mappings={{}}, sources=(*declared.sources, Path(__file__)))


target = bare()
accelerate(target)
'''
