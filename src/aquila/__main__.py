"""`python -m aquila`, for places where scripts are not installed."""

from aquila.cli import main

main()
