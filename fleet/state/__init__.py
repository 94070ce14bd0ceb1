"""This package holds what must outlive a run."""
