"""`python -m schedmate`."""

from schedmate.cli import main

if __name__ == "__main__":
    main()
