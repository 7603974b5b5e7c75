"""Scheduling: operations as codelets (loops, transfers, computes over surrogates), and passes that fit them to an architecture graph."""
