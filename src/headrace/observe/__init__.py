"""How the outside learns what happens: alerts by log and webhook, metrics, health."""
