"""The network as an ONNX model, and what is known of such a model."""
