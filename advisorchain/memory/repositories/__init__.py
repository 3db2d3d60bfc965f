"""Stores of conversations, one backend a file."""
