"""What people look at: pages, plots."""
