"""Distribution of batches over the workers of a cluster."""
