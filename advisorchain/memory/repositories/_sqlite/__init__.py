"""A SQLite file, the thread that works on it, and the rows in it."""
