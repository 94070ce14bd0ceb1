"""This package turns what other systems have into a fleet.yaml, and says what changes by it."""
