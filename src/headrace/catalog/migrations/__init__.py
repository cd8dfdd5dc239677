"""The catalog's schema through time: each file under `versions` is one step, applied in order."""
