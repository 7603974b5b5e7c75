"""Host engines: run programs written as ONNX, and the source models themselves, on the host."""

from .session import Port, Session, reference

__all__ = ["Port", "Session", "reference"]
