"""What notebooks display."""
