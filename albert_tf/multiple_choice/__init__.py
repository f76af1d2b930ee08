"""Multiple choice: RACE and custom questions."""
