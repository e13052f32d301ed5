"""Build, classify, evaluate and so on, as plain functions that return values and never print or exit."""
