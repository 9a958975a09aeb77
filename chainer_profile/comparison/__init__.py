"""Compare recordings, and distinguish changes from noise."""
