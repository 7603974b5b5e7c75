"""The C reading: loop code printed as C11."""
