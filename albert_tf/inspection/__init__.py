"""What lies at a path, told to people."""
