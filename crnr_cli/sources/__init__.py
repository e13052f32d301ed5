"""Sources: the user's files and folders as an ordered listing, read in batches."""
