"""Host engines: execution of exported programs and of source models in onnxruntime, and exact single-precision evaluation."""

from .session import Port, Session, reference, saturates
from .sign_conversion import coded_operators, has_wide_weights

__all__ = ["Port", "Session", "coded_operators", "has_wide_weights", "reference", "saturates"]
