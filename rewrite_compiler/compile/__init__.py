"""Compile: from a model to a plan."""

from ..callable_module import make_callable
from .compile import Options, chosen_targets, compile_model
from .document import PlanFiles, is_plan, plan_digest, plan_files, plan_of_document, plan_onnx, read_plan
from .formats.calibrate import calibrated, float_program
from .operating import calibrated_within_range
from .plan.accounting import Account, account
from .plan.plan import Absorbed, Calibration, HostNode, Offload, Plan, Reason, to_json

__all__ = [
    "Absorbed", "Account", "Calibration", "HostNode", "Offload", "Options", "Plan", "PlanFiles", "Reason", "account", "calibrated",
    "calibrated_within_range", "chosen_targets", "compile_model", "float_program", "is_plan", "plan_digest", "plan_files",
    "plan_of_document", "plan_onnx", "read_plan", "to_json",
]  # fmt: skip

make_callable(__name__, compile_model)
