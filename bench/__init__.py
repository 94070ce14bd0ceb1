"""Group the measurements: `python -m bench NAME [--json]`."""
