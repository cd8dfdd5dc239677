"""Change to statements to commit: strategy and cost, the list of statements, run, verify."""
