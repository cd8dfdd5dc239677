"""Query to normal form: one function per rewrite."""
