"""This package holds one cross-field rule per file."""
