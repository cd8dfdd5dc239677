"""Stream tables on Delta: layout, apply, and the commit that carries the frontier."""
