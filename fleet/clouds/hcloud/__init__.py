"""hcloud."""
