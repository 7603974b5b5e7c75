"""Index calculus: equality of terms at every extent."""
