"""Running work on a Dask cluster."""
