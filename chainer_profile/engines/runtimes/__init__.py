"""The engines, a module for each runtime."""
