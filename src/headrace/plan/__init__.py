"""Query to operators: frozen nodes, rewrites one function each, rendering to SQL."""
