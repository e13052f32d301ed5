"""Residuals become decisions, rows of a CSV, and scores."""
