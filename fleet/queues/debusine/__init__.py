"""This package reads a Debusine server."""
