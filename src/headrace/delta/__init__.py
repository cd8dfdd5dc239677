"""Operators to their change: the change contract, one dispatch, one module per rule family."""
