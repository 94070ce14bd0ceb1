"""This package bakes, tests and publishes the images that machines boot."""
