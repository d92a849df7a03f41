"""Fitted models as files that other programs run: ONNX, with the calibrator inside."""

from __future__ import annotations

from unskew.export.onnx_file import export_onnx, export_run

__all__ = ["export_onnx", "export_run"]
