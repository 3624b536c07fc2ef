"""`python -m jade`."""

from jade.cli.main import main

main()
