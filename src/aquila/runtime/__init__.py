"""Sessions that exchange bytes and run a method's halves, their files and their byte counts."""
