"""What is said in a report."""
