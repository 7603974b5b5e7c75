"""Host engines: run programs written as ONNX, and the source models themselves, on the host."""

from .session import Port, Session, reference, saturates
from .signs import coded_operators

__all__ = ["Port", "Session", "coded_operators", "reference", "saturates"]
