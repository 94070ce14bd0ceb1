"""This package holds what changes the cloud."""
