"""Questions with options: RACE and custom files."""
