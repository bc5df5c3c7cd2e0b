"""Grades untrusted submissions: isolation, assignments, batches."""
