"""The command `advisorchain` (extra `cli`): chat in a terminal or a pipe, and look after what was said."""
