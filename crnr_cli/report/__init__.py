"""Reports for people: pages and plots."""
