"""Advisors around chat models: an ordered chain, the same in a call and in a stream."""
