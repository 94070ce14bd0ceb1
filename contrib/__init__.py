"""This module holds what the developers of queues can use of fleet."""
