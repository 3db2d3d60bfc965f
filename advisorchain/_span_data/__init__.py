"""Spans as they are read back: from files, OTLP, or a recorder, and the tree that they make."""
