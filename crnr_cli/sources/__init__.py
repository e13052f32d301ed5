"""What the user named becomes an ordered listing, and batches of raw values."""
