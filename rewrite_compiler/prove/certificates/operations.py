"""Operations in use: each has the certificate that ships, or is judged on first use, as it and its model are written now."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ...errors import Problem
from ...target import Mapping, Target
from ..verdict import PROVED, REFUTED, UNPROVED
from .cache import Cache, court_cache, mapping_key
from .json_record import proof_of
from .shipped_certificates import Certificate, certificate_of_operation, certificate_of_record

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Judgement:
    """The certificate of an operation, and the problem to report of one that is not proved."""

    certificate: Certificate
    problem: Problem | None = None

    @property
    def is_proved(self) -> bool:
        """Tell whether driver and numerics are proved to agree."""
        return self.certificate.verdict == PROVED

    @property
    def is_refuted(self) -> bool:
        """Tell whether codes are known on which driver and numerics differ."""
        return self.certificate.verdict == REFUTED


_JUDGEMENTS: dict[str, Judgement] = {}  # by key: what this process has looked up


def judge_operation(target: Target, m: Mapping, progress: Progress = lambda _: None) -> Judgement:
    """Return the judgement of an operation at the parameters of its target, judging it where none is cached.

    A verdict is cached by the text of everything it depends on; one that the solver left open is cached for compilations, and judged
    anew by `flexmatch prove`. A target that names no files has no text to know it by, and is judged each time.
    """
    shipped = certificate_of_operation(target, m.variant)
    if shipped is not None and shipped.verdict == PROVED:
        return Judgement(shipped)
    if not target.sources:
        return _judge(target, m, Cache(None), progress)
    key = mapping_key(target, m.variant)
    if key not in _JUDGEMENTS:
        _JUDGEMENTS[key] = _judge(target, m, court_cache(), progress)
    return _JUDGEMENTS[key]


def _judge(target: Target, m: Mapping, cache: Cache, progress: Progress) -> Judgement:
    from .judge import judge_cases, mapping_case

    case = mapping_case(target, target.name, m.variant)
    open_key = f"{case.key}.open"
    record = cache.get(case.key) or cache.get(open_key)
    if record is None:
        progress(m.name)
        (record,) = judge_cases([case], Cache(None))
        cache.put(open_key if record["verdict"] == UNPROVED else case.key, record)
    proof = replace(proof_of(record), at=m.rule.place)
    return Judgement(certificate_of_record("operation", m.name, record), None if proof.is_proved else _problem(m, proof.problem))


def _problem(m: Mapping, problem: Problem | None) -> Problem | None:
    """Return why an operation is not proved, called by its kind and at the place where it is written."""
    if problem is None:
        return None
    return replace(problem, sentence=problem.sentence.replace(f"rule {m.name} ", f"operation {m.name} ", 1), place=m.rule.place, help="")
