"""This package holds the sequences over ports."""
