"""Text for operators: from outside as it may be shown, and numbers, instants and failures in words."""
