"""From residuals to decisions, rows of a CSV, and scores."""
