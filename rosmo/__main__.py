"""`python -m rosmo`: the command line."""

from rosmo.cli import program

program()
