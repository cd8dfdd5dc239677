"""Text to checked query: statements, names, analysis against schemas, what cannot be maintained and why."""
