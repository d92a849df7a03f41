"""Fitted models as files that other programs run: ONNX, with the calibrator inside."""

from __future__ import annotations

from unskew.export.onnx_file import export_onnx, export_run
from unskew.export.triton import export_triton

__all__ = ["export_onnx", "export_run", "export_triton"]
