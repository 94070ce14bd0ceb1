"""This package writes fleet.yaml's rules in the words of the queue that assigns the work."""
