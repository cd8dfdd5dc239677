"""Text to checked query: statements, names, analysis against source schemas, what cannot be maintained and why."""
