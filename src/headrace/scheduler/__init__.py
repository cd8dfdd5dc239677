"""The graph of stream tables, the clock that says what is due, and the loop."""
