"""C sources: device models, and plans as host programs."""
