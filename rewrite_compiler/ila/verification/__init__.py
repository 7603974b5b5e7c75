"""What must hold of an accelerator model before anything is built on it."""
