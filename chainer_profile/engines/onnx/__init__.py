"""A network as an ONNX model, and which layers the steps of such a model do."""
