"""Exports networks as ONNX models, and maps the nodes of a model to layers."""
