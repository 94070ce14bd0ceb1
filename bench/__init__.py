"""This module groups the measurements: `python -m bench NAME [--json]`."""
