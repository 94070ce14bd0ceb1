"""Simulated clouds for tests, the demo and trials without an account."""
