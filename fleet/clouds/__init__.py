"""This package holds what exists and what it costs."""
