"""The laws of `check_repository`, by what they are about."""
