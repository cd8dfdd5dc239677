"""Definitions, frontiers, history, alerts and locks, on SQLite or PostgreSQL."""
