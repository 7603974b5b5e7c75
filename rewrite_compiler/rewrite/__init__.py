"""Rules: identities between program patterns; the public namespace for rule files, with the kinds of attributes in patterns."""

from ..ops.op import Tensor
from ..ops.static import Ints, IsConstant
from .rule import Float, Int, Law, Rule, Str, Where, rule

__all__ = ["Float", "Int", "Ints", "IsConstant", "Law", "Rule", "Str", "Tensor", "Where", "rule"]
