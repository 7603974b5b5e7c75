"""Rules: identities between program patterns."""

from .rule import Float, Int, Law, Rule, Str, Where, rule

__all__ = ["Float", "Int", "Law", "Rule", "Str", "Where", "rule"]
