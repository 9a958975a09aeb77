"""The engines, one module per runtime."""
