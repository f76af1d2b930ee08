"""The commands, one module each: its flags, and a call of what does the work."""
