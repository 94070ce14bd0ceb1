"""simulators."""
