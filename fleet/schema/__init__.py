"""This package says what may be written in fleet.yaml, and where each part of it was written."""
