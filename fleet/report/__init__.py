"""This package holds value in, text out."""
